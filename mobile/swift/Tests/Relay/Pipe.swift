import Foundation

/// A command or its result; tests/e2e/mobile/host.cc documents the fields.
struct Frame: Sendable {
    enum Name {
        static let start: UInt32 = 1
        static let create: UInt32 = 2
        static let request: UInt32 = 3
        static let cancel: UInt32 = 4
        static let close: UInt32 = 9
        static let tokens: UInt32 = 12
        static let event: UInt32 = 100
        static let ask: UInt32 = 101
    }

    var name: UInt32
    var id: UInt32
    var a: UInt64 = 0
    var b: UInt64 = 0
    var c: Int32 = 0
    var d: Int32 = 0
    var texts: [Data] = []
}

/// Frames over standard input and output, in the machine's byte order. Any thread may write.
final class Pipe: @unchecked Sendable {
    private let input = FileHandle.standardInput
    private let output = FileHandle.standardOutput
    private let lock = NSLock()

    /// The next frame; nil when the other end is closed.
    func read() -> Frame? {
        guard let name: UInt32 = number(), let id: UInt32 = number(), let a: UInt64 = number(),
            let b: UInt64 = number(), let c: Int32 = number(), let d: Int32 = number(),
            let count: UInt32 = number()
        else { return nil }
        var texts: [Data] = []
        for _ in 0..<count {
            guard let size: UInt32 = number(), let text = bytes(Int(size)) else { return nil }
            texts.append(text)
        }
        return Frame(name: name, id: id, a: a, b: b, c: c, d: d, texts: texts)
    }

    func write(_ frame: Frame) {
        var data = Data()
        func put(_ value: some FixedWidthInteger) {
            withUnsafeBytes(of: value) { data.append(contentsOf: $0) }
        }
        put(frame.name)
        put(frame.id)
        put(frame.a)
        put(frame.b)
        put(frame.c)
        put(frame.d)
        put(UInt32(frame.texts.count))
        for text in frame.texts {
            put(UInt32(text.count))
            data.append(text)
        }
        lock.withLock { output.write(data) }
    }

    private func number<Value: FixedWidthInteger>() -> Value? {
        bytes(MemoryLayout<Value>.size)?.withUnsafeBytes { $0.loadUnaligned(as: Value.self) }
    }

    private func bytes(_ size: Int) -> Data? {
        var data = Data()
        while data.count < size {
            guard let more = try? input.read(upToCount: size - data.count), !more.isEmpty else {
                return nil
            }
            data.append(more)
        }
        return data
    }
}
