import Foundation
import XCTest

@testable import Mlcc

/// Downloads from a server in this process, which does what servers and networks do.
final class ModelStoreTests: XCTestCase {
    private static func random(_ count: Int, _ seed: UInt8) -> Data {
        var state = UInt64(seed) + 1
        return Data(
            (0..<count).map { _ in
                state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                return UInt8(truncatingIfNeeded: state >> 33)
            })
    }

    private let weights = random(5 * testChunk + 5, 1)
    private lazy var files = [
        "model.so": Self.random(1000, 2), "additional chat/ä%20b+c.jinja": Data("hi".utf8),
        "empty": Data(), "weights.safetensors": weights,
    ]
    private var server: ModelServer!
    private var folder: URL!

    override func setUp() {
        folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        server = ModelServer(files.merging([Manifest.name: manifest(files)]) { $1 })
    }

    override func tearDown() {
        server.close()
        try? FileManager.default.removeItem(at: folder)
    }

    private func store(maxBytes: Int? = nil, free: Int = .max, tries: Int = 1) -> ModelStore {
        let fetcher = Fetcher(delays: Array(repeating: 0.001, count: tries - 1), idleSeconds: 10)
        return ModelStore(folder, maxBytes: maxBytes, fetcher: fetcher, chunkBytes: testChunk) { _ in
            free
        }
    }

    private func assertWhole(_ place: URL, line: UInt = #line) throws {
        for (path, bytes) in files {
            let found = try Data(contentsOf: place.appendingPathComponent(path))
            XCTAssertEqual(found, bytes, path, line: line)
        }
        let manifest = place.appendingPathComponent(Manifest.name).path
        XCTAssertTrue(FileManager.default.fileExists(atPath: manifest), line: line)
    }

    private func refused(_ store: ModelStore? = nil, line: UInt = #line) async -> MlccError? {
        do {
            _ = try await (store ?? self.store()).fetch(server.url)
            XCTFail("it is refused", line: line)
            return nil
        } catch {
            XCTAssertTrue(error is MlccError, "\(error)", line: line)
            return error as? MlccError
        }
    }

    private func requests(_ path: String) -> Int { server.asked.withLock { $0.filter { $0 == path }.count } }

    func testHashes() {
        XCTAssertEqual(
            SHA256.hex(Data("abc".utf8)),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        XCTAssertEqual(
            SHA256.hex(Data()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        let data = Self.random(300, 7)
        for cut in [0, 1, 55, 56, 63, 64, 65, 127, 128, 200] {
            var hash = SHA256()
            hash.update(data[..<cut])
            hash.update(data[cut...])
            XCTAssertEqual(hash.finish(), SHA256.hex(data))
        }
    }

    func testAModelIsFetchedOnceAndKept() async throws {
        let states = Locked<[LoadProgress]>([])
        let place = try await store().fetch(server.url) { state in states.withLock { $0.append(state) } }
        try assertWhole(place)
        let total = files.values.reduce(0) { $0 + $1.count }
        XCTAssertEqual(states.withLock { $0.last }, .download(done: total, total: total))
        XCTAssertEqual(requests("weights.safetensors"), 6)
        let again = try await store().fetch(server.url.appendingPathComponent(Manifest.name))
        XCTAssertEqual(again.path, place.path)
        XCTAssertEqual(requests("weights.safetensors"), 6)
        server.close()
        let offline = try await store().fetch(server.url)
        XCTAssertEqual(offline.path, place.path)
    }

    func testProgressIsASequence() async throws {
        var last: DownloadEvent?
        var done = 0
        for try await event in store().download(server.url) {
            if case .progress(let progress) = event {
                XCTAssertGreaterThanOrEqual(progress.done, done)
                done = progress.done
            }
            last = event
        }
        guard case .finished(let place) = last else { return XCTFail("\(String(describing: last))") }
        try assertWhole(place)
    }

    func testAServerWithoutRangesSendsEachFileOnce() async throws {
        server.faults.withLock { $0.ranges = false }
        try assertWhole(try await store().fetch(server.url))
        XCTAssertEqual(requests("weights.safetensors"), 1)
    }

    func testABrokenConnectionIsTriedAgainAndALaterProcessGoesOn() async throws {
        for ranges in [true, false] {
            try? FileManager.default.removeItem(at: folder)
            server.faults.withLock { faults in
                faults.ranges = ranges
                faults.cut = { path, size in path == "weights.safetensors" ? size * 2 / 3 : size }
            }
            let failed = await refused()
            guard case .download(let message, _) = failed else { return XCTFail("\(failed as Any)") }
            XCTAssertTrue(message.contains("what has arrived is kept"), message)
            let once = Locked(true)
            server.faults.withLock { faults in
                faults.cut = { path, size in
                    let isFirst = path == "model.so" && once.withLock { once in
                        defer { once = false }
                        return once
                    }
                    return isFirst ? 1 : size
                }
            }
            try assertWhole(try await store(tries: 2).fetch(server.url))
        }
    }

    func testADamagedChunkIsRequestedOnceMoreThenRefused() async throws {
        var damaged = weights
        damaged[testChunk + 3] ^= 1
        server.files.withLock { $0["weights.safetensors"] = damaged }
        let error = await refused()
        let range = "weights.safetensors is damaged in bytes \(testChunk) to \(2 * testChunk)"
        XCTAssertTrue(error?.message.contains(range) ?? false, "\(error as Any)")
        server.files.withLock { [weights] in $0["weights.safetensors"] = weights }
        let before = requests("weights.safetensors")
        try assertWhole(try await store().fetch(server.url))
        XCTAssertLessThanOrEqual(requests("weights.safetensors") - before, 5, "sound chunks are kept")
    }

    func testAFileThatIsDamagedOnDiskIsMended() async throws {
        server.faults.withLock { $0.refuse = { $0.hasPrefix("empty") ? 403 : nil } }
        let entry = try StorePath(root: folder, url: server.url)
        try FileManager.default.createDirectory(
            at: entry.partialPath, withIntermediateDirectories: true)
        try Data(count: 2000).write(to: entry.partialPath.appendingPathComponent("model.so"))
        try Data(count: 9).write(to: entry.partialPath.appendingPathComponent("foreign"))
        let place = try await store().fetch(server.url)
        try assertWhole(place)
        XCTAssertFalse(
            FileManager.default.fileExists(atPath: place.appendingPathComponent("foreign").path))
    }

    func testThereIsNoRoom() async throws {
        let full = await refused(store(free: 1000))
        XCTAssertEqual(full?.code, "disk_full")
        XCTAssertEqual(requests("weights.safetensors"), 0, "nothing large was fetched")
        let bounded = await refused(store(maxBytes: weights.count))
        XCTAssertEqual(bounded?.code, "disk_full")
        try assertWhole(try await store(maxBytes: 2 * weights.count).fetch(server.url))
    }

    func testAStoreIsTrimmedTheOldestFirst() async throws {
        let store = store()
        let first = try await store.fetch(server.url)
        let other = ModelServer(server.files.withLock { $0 })
        defer { other.close() }
        let old = [FileAttributeKey.modificationDate: Date(timeIntervalSince1970: 1000)]
        let source = first.appendingPathComponent(StorePath.source).path
        try FileManager.default.setAttributes(old, ofItemAtPath: source)
        let second = try await store.fetch(other.url)
        XCTAssertEqual(store.models().count, 2)
        XCTAssertEqual(try store.trim(to: .max), [])
        let deleted = try store.trim(to: 2 * weights.count)
        XCTAssertEqual(deleted.map(\.url), [server.url.absoluteString])
        XCTAssertEqual(store.models().map(\.folder.path), [second.path])
        try store.delete(other.url)
        XCTAssertEqual(store.models(), [])
    }

    func testAManifestThatLeavesTheFolderIsRefused() async throws {
        let unsafe = [
            "../out", "/etc/x", "a/../b", "a//b", "a\\\\b", "C:x", "", ".", "mlcc.json", "a\\u0000b", "a/",
        ]
        for path in unsafe {
            server.files.withLock { $0[Manifest.name] = manifest([path: Data(count: 5)]) }
            let error = await refused()
            guard case .artifact = error else { return XCTFail("\(path): \(error as Any)") }
            XCTAssertEqual((try? files(below: folder)) ?? [], [], path)
        }
    }

    private func files(below folder: URL) throws -> [String] { try Mlcc.files(below: folder) }

    func testAManifestThatIsNoneOrUnsoundIsRefused() async throws {
        let sound = String(decoding: manifest(files), as: UTF8.self)
        let five = ["a": Data(count: 5)]
        let wrong = [
            "<html>Log in to the hotel's network</html>",
            sound.replacingOccurrences(of: #""name": "m""#, with: #""name": "n""#),
            String(sound.dropLast(10)),
            String(
                decoding: manifest(files) { manifestEntry($0, $1, bytes: $1.count + testChunk) },
                as: UTF8.self),
            String(decoding: manifest(files) { manifestEntry($0, $1, bytes: -1) }, as: UTF8.self),
            String(decoding: manifest(["a": Data(count: 5), "A": Data(count: 5)]), as: UTF8.self),
            String(
                decoding: manifest(five) { path, data in
                    manifestEntry(path, data).replacingOccurrences(
                        of: "[0-9a-f]{64}", with: "../../out", options: .regularExpression)
                }, as: UTF8.self),
        ]
        for text in wrong {
            server.files.withLock { $0[Manifest.name] = Data(text.utf8) }
            let error = await refused()
            guard case .artifact = error else { return XCTFail("\(text): \(error as Any)") }
        }
    }

    func testAnotherModelAtTheAddressReplacesTheFirst() async throws {
        let place = try await store().fetch(server.url)
        let other = ["model.so": Self.random(500, 3)]
        server.files.withLock { $0 = other.merging([Manifest.name: manifest(other)]) { $1 } }
        _ = try await store().fetch(server.url)
        XCTAssertEqual(try files(below: place).sorted(), [StorePath.source, Manifest.name, "model.so"])
    }

    func testACancelledDownloadEndsAtOnceAndGoesOnLater() async throws {
        let held = DispatchSemaphore(value: 0)
        let isAsked = Locked(false)
        server.faults.withLock { faults in
            faults.refuse = { path in
                guard path == "weights.safetensors" else { return nil }
                isAsked.withLock { $0 = true }
                held.wait()
                held.signal()
                return nil
            }
        }
        let (store, url) = (store(), server.url)
        let task = Task { try await store.fetch(url) }
        while !isAsked.withLock({ $0 }) { try await Task.sleep(nanoseconds: 1_000_000) }
        task.cancel()
        do {
            _ = try await task.value
            XCTFail("it was cancelled")
        } catch is CancellationError {}
        held.signal()
        try assertWhole(try await store.fetch(url))
    }

    func testTwoTasksFetchAModelOnce() async throws {
        let (store, url) = (store(), server.url)
        async let first = store.fetch(url)
        async let second = store.fetch(url)
        let places = try await [first, second]
        XCTAssertEqual(places[0], places[1])
        XCTAssertEqual(requests("weights.safetensors"), 6)
    }

    func testWhatIsMissingIsNamed() async throws {
        server.files.withLock { $0["model.so"] = nil }
        let error = await refused()
        XCTAssertTrue(error?.message.contains("model.so") ?? false)
        for text in ["ftp://x/y", "no-address"] {
            do {
                _ = try await store().fetch(URL(string: text)!)
                XCTFail("it is no web address")
            } catch MlccError.download {}
        }
    }

    func testAnAddressIsEscapedAndItsQueryGoesWithEveryFile() throws {
        let url = URL(string: "https://example.org/a%20b/mlcc.json?token=1")!
        let entry = try StorePath(root: folder, url: url)
        XCTAssertEqual(
            try entry.url("c/ä%.x").absoluteString,
            "https://example.org/a%20b/c/%C3%A4%25.x?token=1")
        XCTAssertEqual(entry.folderURL, "https://example.org/a%20b/")
    }
}
