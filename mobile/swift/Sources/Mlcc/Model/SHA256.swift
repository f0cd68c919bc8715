import Foundation

/// SHA-256 (FIPS 180-4) of bytes that arrive in pieces. Foundation has none on Linux.
struct SHA256 {
    private var state: [UInt32] = [
        0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab,
        0x5be0_cd19,
    ]
    private var block: [UInt8] = []
    private var count: UInt64 = 0

    /// The hash of bytes in hexadecimal digits.
    static func hex(_ data: some DataProtocol) -> String {
        var hash = SHA256()
        hash.update(data)
        return hash.finish()
    }

    mutating func update(_ data: some DataProtocol) {
        for region in data.regions { region.withUnsafeBytes { update($0) } }
    }

    /// The hash in hexadecimal digits. Nothing may follow.
    mutating func finish() -> String {
        let bits = count * 8
        var padding: [UInt8] = [0x80]
        padding.append(contentsOf: repeatElement(0, count: (119 - Int(count % 64)) % 64))
        for shift in stride(from: 56, through: 0, by: -8) {
            padding.append(UInt8(truncatingIfNeeded: bits >> UInt64(shift)))
        }
        padding.withUnsafeBytes { update($0) }
        return state.map { String(format: "%08x", $0) }.joined()
    }

    private mutating func update(_ bytes: UnsafeRawBufferPointer) {
        count += UInt64(bytes.count)
        var start = 0
        if !block.isEmpty {
            start = min(64 - block.count, bytes.count)
            block.append(contentsOf: bytes[..<start])
            guard block.count == 64 else { return }
            let whole = block
            whole.withUnsafeBytes { compress($0, at: 0) }
            block = []
        }
        while bytes.count - start >= 64 {
            compress(bytes, at: start)
            start += 64
        }
        block.append(contentsOf: bytes[start...])
    }

    private mutating func compress(_ bytes: UnsafeRawBufferPointer, at start: Int) {
        state.withUnsafeMutableBufferPointer { state in
            Self.constants.withUnsafeBufferPointer { constants in
                withUnsafeTemporaryAllocation(of: UInt32.self, capacity: 64) { words in
                    Self.expand(bytes, start, words)
                    Self.rounds(state, constants, words)
                }
            }
        }
    }

    /// The 64 words of a block.
    private static func expand(
        _ bytes: UnsafeRawBufferPointer, _ start: Int, _ words: UnsafeMutableBufferPointer<UInt32>
    ) {
        for i in 0..<16 {
            let word = bytes.loadUnaligned(fromByteOffset: start + 4 * i, as: UInt32.self)
            words[i] = UInt32(bigEndian: word)
        }
        for i in 16..<64 {
            let (a, b) = (words[i - 15], words[i - 2])
            let s0 = rotated(a, 7) ^ rotated(a, 18) ^ (a >> 3)
            let s1 = rotated(b, 17) ^ rotated(b, 19) ^ (b >> 10)
            words[i] = words[i - 16] &+ s0 &+ words[i - 7] &+ s1
        }
    }

    private static func rounds(
        _ state: UnsafeMutableBufferPointer<UInt32>, _ constants: UnsafeBufferPointer<UInt32>,
        _ words: UnsafeMutableBufferPointer<UInt32>
    ) {
        var (a, b, c, d) = (state[0], state[1], state[2], state[3])
        var (e, f, g, h) = (state[4], state[5], state[6], state[7])
        for i in 0..<64 {
            let s1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)
            let t1 = h &+ s1 &+ ((e & f) ^ (~e & g)) &+ constants[i] &+ words[i]
            let s0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)
            let t2 = s0 &+ ((a & b) ^ (a & c) ^ (b & c))
            (h, g, f, e) = (g, f, e, d &+ t1)
            (d, c, b, a) = (c, b, a, t1 &+ t2)
        }
        for (i, value) in [a, b, c, d, e, f, g, h].enumerated() { state[i] &+= value }
    }

    @inline(__always)
    private static func rotated(_ value: UInt32, _ count: UInt32) -> UInt32 {
        (value >> count) | (value << (32 - count))
    }

    /// The fractional parts of the cube roots of the first 64 primes.
    private static let constants: [UInt32] = {
        var primes: [Int] = []
        for number in 2... where primes.allSatisfy({ number % $0 != 0 }) {
            primes.append(number)
            if primes.count == 64 { break }
        }
        return primes.map(cubeRootFraction)
    }()

    /// floor(2^32 * cbrt(prime)) without its whole part, by bisection: a Double has too few bits.
    private static func cubeRootFraction(_ prime: Int) -> UInt32 {
        var (low, high) = (UInt64(0), UInt64(1) << 35)
        while high - low > 1 {
            let middle = (low + high) / 2
            if isCubeAtMost(middle, prime) { low = middle } else { high = middle }
        }
        return UInt32(truncatingIfNeeded: low)
    }

    /// value^3 <= prime * 2^96
    private static func isCubeAtMost(_ value: UInt64, _ prime: Int) -> Bool {
        let square = value.multipliedFullWidth(by: value)
        let low = square.low.multipliedFullWidth(by: value)
        let high = square.high.multipliedFullWidth(by: value)
        let (top, carry) = high.low.addingReportingOverflow(low.high)
        let over = high.high + (carry ? 1 : 0)
        if over > 0 { return false }
        let bound = UInt64(prime) << 32
        return top < bound || (top == bound && low.low == 0)
    }
}
