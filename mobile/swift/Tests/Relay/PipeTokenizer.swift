import Foundation
import Mlcc

/// A tokenizer and a decoder of images at the other end of the pipe: every call goes there and waits for its answer.
final class PipeTokenizer: Tokenizer, ImageDecoder, @unchecked Sendable {
    private struct Failure: Error {}

    private let pipe: Pipe
    private let changed = NSCondition()
    private var answers: [UInt32: Frame] = [:]
    private var asked: UInt32 = 0

    init(pipe: Pipe) { self.pipe = pipe }

    var specialTokens: [String] {
        guard let data = try? ask(2, 0, Data()) else { return [] }
        return (try? JSONDecoder().decode([String].self, from: data)) ?? []
    }

    func encode(_ text: String, special: Bool) throws -> [Int32] {
        let data = try ask(0, special ? 1 : 0, Data(text.utf8))
        return data.withUnsafeBytes { bytes in
            (0..<bytes.count / 4).map { bytes.loadUnaligned(fromByteOffset: $0 * 4, as: Int32.self) }
        }
    }

    func decode(_ ids: [Int32]) throws -> String {
        String(decoding: try ask(1, 0, ids.withUnsafeBytes { Data($0) }), as: UTF8.self)
    }

    /// The file crosses behind its type and a zero; width, height and RGB come back.
    func decode(_ file: Data, type: String) throws -> DecodedImage {
        let data = try ask(3, 0, Data(type.utf8) + [0] + file)
        let sides = data.withUnsafeBytes { bytes in
            [0, 4].map { Int(bytes.loadUnaligned(fromByteOffset: $0, as: UInt32.self)) }
        }
        return DecodedImage(width: sides[0], height: sides[1], rgb: [UInt8](data.dropFirst(8)))
    }

    /// The reader of the pipe found an answer.
    func answer(_ frame: Frame) {
        changed.withLock {
            answers[frame.id] = frame
            changed.broadcast()
        }
    }

    private func ask(_ function: Int32, _ special: Int32, _ data: Data) throws -> Data {
        let reply = changed.withLock {
            asked += 1
            let id = asked
            pipe.write(
                Frame(name: Frame.Name.ask, id: id, c: function, d: special, texts: [data]))
            while answers[id] == nil { changed.wait() }
            return answers.removeValue(forKey: id)!
        }
        if reply.c != 0 { throw Failure() }
        return reply.texts[0]
    }
}
