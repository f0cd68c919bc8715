import Foundation
import Mlcc

/// An engine, and requests by `Engine.send`: uses only the public API.
final class Relay: @unchecked Sendable {
    private let pipe = Pipe()
    private lazy var tokenizer = PipeTokenizer(pipe: pipe)
    private let lock = NSLock()
    private var running: [UInt64: Task<Void, Never>] = [:]
    private var calls: UInt64 = 0
    private var engine: Engine?
    private var files = NativeFiles()

    /// Serves until the other end is closed.
    func run() async {
        while let order = await next() {
            switch order.name {
            case Frame.Name.start: start(order)
            case Frame.Name.create: create(order)
            case Frame.Name.request: request(order)
            case Frame.Name.cancel:
                done(order)
                lock.withLock { running[order.b] }?.cancel()
            case Frame.Name.close:
                await engine?.close()
                done(order)
            case Frame.Name.tokens: tokenizer.answer(order)
            default: fatalError("an order that this program does not know: \(order.name)")
            }
        }
    }

    /// A frame, read on a thread that may block.
    private func next() async -> Frame? {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async { continuation.resume(returning: self.pipe.read()) }
        }
    }

    /// Takes the places of Python's parts; "\u{1}" is NULL.
    private func start(_ order: Frame) {
        let texts = order.texts.map { String(decoding: $0, as: UTF8.self) }
        let path = texts[2] == "\u{1}" ? "" : texts[2]
        files = NativeFiles(pythonPath: path.split(separator: ":").map(String.init))
        done(order)
    }

    private func create(_ order: Frame) {
        let fields = try! JSONDecoder().decode(JSONValue.self, from: order.texts[0])
        let model = URL(fileURLWithPath: fields["model"]!.text!)
        var options = EngineOptions()
        options.files = files
        if order.c & 2 != 0 { options.tokenizer = tokenizer }
        if order.c & 8 != 0 { options.images = tokenizer }
        done(order)
        Task { [options] in
            do {
                let made = try await Engine.load(model, options: options)
                lock.withLock { engine = made }
                event(0, 2, 0, try JSONEncoder().encode(made.info))
            } catch {
                event(0, 3, 99, Data("\(error)".utf8))
            }
        }
    }

    private func request(_ order: Frame) {
        let call = lock.withLock {
            calls += 1
            return calls
        }
        pipe.write(Frame(name: order.name, id: order.id, b: call, texts: [Data(), Data()]))
        let task = Task {
            await answer(call, order.texts)
            _ = lock.withLock { running.removeValue(forKey: call) }
        }
        lock.withLock { running[call] = task }
    }

    private func answer(_ call: UInt64, _ texts: [Data]) async {
        var status: Int32 = 0
        do {
            let headers = try JSONDecoder().decode([String: String].self, from: texts[2])
            let request = APIRequest(
                String(decoding: texts[0], as: UTF8.self), String(decoding: texts[1], as: UTF8.self),
                headers: headers, body: texts[3])
            let response = try await engine!.send(request)
            event(call, 4, Int32(response.status), try JSONEncoder().encode(response.headers))
            for try await piece in response.body { event(call, 5, 0, piece) }
        } catch is CancellationError {
            status = 2
        } catch {
            FileHandle.standardError.write(Data("\(error)\n".utf8))
            status = 99
        }
        event(call, 6, status, Data())
    }

    private func done(_ order: Frame) {
        pipe.write(Frame(name: order.name, id: order.id, a: 1, texts: [Data(), Data()]))
    }

    /// An event of mlcc.h.
    private func event(_ call: UInt64, _ kind: Int32, _ status: Int32, _ data: Data) {
        pipe.write(
            Frame(name: Frame.Name.event, id: 0, a: 1, b: call, c: kind, d: status, texts: [data]))
    }
}
