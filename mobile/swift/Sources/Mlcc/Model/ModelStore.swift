import Foundation

/// A folder of models that were downloaded from web servers.
///
/// A download resumes where it stopped, also in a later process. Each chunk of 8 MiB is checked
/// against the manifest's SHA-256 as it arrives. A model is moved to its final place when it is
/// complete. One process at a time may fetch into a store.
public final class ModelStore: Sendable {
    /// The folder; created when needed.
    public let root: URL
    /// Limit in bytes for all models of the store together; nil: the free disk space.
    public let maxBytes: Int?
    private let fetcher: Fetcher
    private let chunkBytes: Int
    private let free: @Sendable (URL) -> Int
    private let queue = KeyedQueue()

    /// A store in the folder `root`.
    public convenience init(_ root: URL, maxBytes: Int? = nil) {
        self.init(root, maxBytes: maxBytes, fetcher: Fetcher(), chunkBytes: 8 << 20) { folder in
            let found = try? FileManager.default.attributesOfFileSystem(forPath: folder.path)
            return (found?[.systemFreeSize] as? NSNumber)?.intValue ?? .max
        }
    }

    init(
        _ root: URL, maxBytes: Int?, fetcher: Fetcher, chunkBytes: Int,
        free: @escaping @Sendable (URL) -> Int
    ) {
        (self.root, self.maxBytes, self.fetcher) = (root, maxBytes, fetcher)
        (self.chunkBytes, self.free) = (chunkBytes, free)
    }

    /// The store `mlcc/models` in the user's cache.
    public static let standard: ModelStore = {
        let caches = FileManager.default.urls(for: .cachesDirectory, in: .userDomainMask)[0]
        return ModelStore(caches.appendingPathComponent("mlcc/models", isDirectory: true))
    }()

    /// The folder of the model at `url`; chunks that are missing are fetched. A stored model is
    /// used as it is if the server cannot be reached, and fetched again if the server has another
    /// version. Cancelling the task stops; what has arrived is kept.
    ///
    /// - Throws: ``MlccError``: `download`; `artifact` if the server's files are damaged or unsafe;
    ///   `capacity` if there is no room.
    public func fetch(
        _ url: URL, onProgress: @escaping @Sendable (LoadProgress) -> Void = { _ in }
    ) async throws -> URL {
        let entry = try StorePath(root: root, url: url)
        return try await queue.run(entry.name) { [self] in
            try Task.checkCancellation()
            try await fetch(entry, onProgress)
            let source = entry.path.appendingPathComponent(StorePath.source).path
            try? FileManager.default.setAttributes([.modificationDate: Date()], ofItemAtPath: source)
            return entry.path
        }
    }

    /// ``fetch(_:onProgress:)`` as a sequence: its progress, and at the end the folder. To leave
    /// the loop stops the download; what has arrived is kept. A slow reader gets the newest state
    /// only.
    public func download(_ url: URL) -> AsyncThrowingStream<DownloadEvent, any Error> {
        AsyncThrowingStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
            let task = Task {
                do {
                    let folder = try await fetch(url) { continuation.yield(.progress($0)) }
                    continuation.yield(.finished(folder))
                    continuation.finish()
                } catch {
                    continuation.finish(throwing: error)
                }
            }
            continuation.onTermination = { _ in task.cancel() }
        }
    }

    /// All models of the store, the largest first, with partial downloads.
    public func models() -> [StoredModel] {
        let manager = FileManager.default
        let found = try? manager.contentsOfDirectory(at: root, includingPropertiesForKeys: nil)
        return (found ?? []).compactMap(stored).sorted { $0.bytes > $1.bytes }
    }

    /// Delete a model or its partial download. Not while it is being fetched or loaded.
    public func delete(_ url: URL) throws {
        let entry = try StorePath(root: root, url: url)
        for folder in [entry.path, entry.partialPath] { try remove(folder) }
    }

    /// Delete models until the store has at most `bytes`, the least recently fetched first. Not
    /// while one of them is being fetched or loaded. Returns the deleted ones.
    @discardableResult
    public func trim(to bytes: Int) throws -> [StoredModel] {
        var left = models().sorted { $0.lastUse < $1.lastUse }
        var deleted: [StoredModel] = []
        while left.reduce(0, { $0 + $1.bytes }) > bytes {
            let model = left.removeFirst()
            try remove(model.folder)
            deleted.append(model)
        }
        return deleted
    }

    private func fetch(
        _ entry: StorePath, _ onProgress: @escaping @Sendable (LoadProgress) -> Void
    ) async throws {
        let known = try? Data(contentsOf: entry.path.appendingPathComponent(Manifest.name))
        let sent: Data
        do {
            sent = try await fetcher.get(entry.url(Manifest.name), path: Manifest.name) {
                try await $0.body.whole(limit: Manifest.maxBytes, path: Manifest.name)
            }
        } catch let error as MlccError {
            if case .download = error, known != nil { return }
            throw error
        }
        if known == sent { return }
        let source = try entry.url(Manifest.name).absoluteString
        let manifest = try Manifest.parse(sent, source: source, chunkBytes: chunkBytes)
        try await download(entry, manifest, sent, onProgress)
    }

    private func download(
        _ entry: StorePath, _ manifest: Manifest, _ bytes: Data,
        _ onProgress: @escaping @Sendable (LoadProgress) -> Void
    ) async throws {
        let (partial, manager) = (entry.partialPath, FileManager.default)
        try manager.createDirectory(at: partial, withIntermediateDirectories: true)
        try Data(entry.folderURL.utf8).write(to: partial.appendingPathComponent(StorePath.source))
        try entry.removeAllBut(manifest.files)
        let download = Download(
            entry, fetcher, chunkBytes: chunkBytes, total: manifest.bytes, onProgress: onProgress)
        let missing = try download.missing(manifest.files)
        try checkRoom(entry, manifest, missing.reduce(0) { $0 + $1.range.count })
        try await download.fetch(missing)
        try bytes.write(to: partial.appendingPathComponent(Manifest.name))
        try remove(entry.path)
        try manager.moveItem(at: partial, to: entry.path)
    }

    private func checkRoom(_ entry: StorePath, _ manifest: Manifest, _ wanted: Int) throws {
        let others = models().filter { $0.url != entry.folderURL }.reduce(0) { $0 + $1.bytes }
        let allowed = maxBytes.map { $0 - others - (manifest.bytes - wanted) } ?? .max
        let room = min(free(entry.partialPath), allowed)
        if wanted <= room { return }
        throw MlccError.capacity(
            message: "the model needs \(wanted) bytes more, and there is room for \(max(room, 0)) in "
                + "\(root.path); delete other models (ModelStore.trim) or allow the store more",
            code: "disk_full")
    }

    /// The model in a folder; nil: it is not of this store, or it is just being deleted.
    private func stored(_ folder: URL) -> StoredModel? {
        let source = folder.appendingPathComponent(StorePath.source)
        guard let url = try? String(contentsOf: source, encoding: .utf8),
            let paths = try? files(below: folder)
        else { return nil }
        func attributes(_ path: String) -> [FileAttributeKey: Any]? {
            try? FileManager.default.attributesOfItem(atPath: folder.appendingPathComponent(path).path)
        }
        let sizes = paths.map { (attributes($0)?[.size] as? NSNumber)?.intValue ?? 0 }
        return StoredModel(
            url: url, folder: folder, bytes: sizes.reduce(0, +),
            isComplete: !folder.lastPathComponent.hasSuffix(StorePath.part),
            lastUse: attributes(StorePath.source)?[.modificationDate] as? Date ?? .distantPast)
    }

    private func remove(_ folder: URL) throws {
        if FileManager.default.fileExists(atPath: folder.path) {
            try FileManager.default.removeItem(at: folder)
        }
    }
}

/// A model in a store.
public struct StoredModel: Sendable, Hashable {
    /// The URL of its folder.
    public let url: String
    /// Its folder on this machine.
    public let folder: URL
    /// Its size on disk in bytes.
    public let bytes: Int
    /// Whether it is complete.
    public let isComplete: Bool
    /// When it was fetched or asked for the last time.
    public let lastUse: Date
}

/// A state of ``ModelStore/download(_:)``.
public enum DownloadEvent: Sendable, Hashable {
    /// Bytes that are done, and in all.
    case progress(LoadProgress)
    /// The folder of the complete model.
    case finished(URL)
}

/// Runs one function at a time for each key.
actor KeyedQueue {
    private var waiting: [String: [CheckedContinuation<Void, Never>]] = [:]

    nonisolated func run<Result: Sendable>(
        _ key: String, _ body: @Sendable () async throws -> Result
    ) async throws -> Result {
        await enter(key)
        do {
            let result = try await body()
            await leave(key)
            return result
        } catch {
            await leave(key)
            throw error
        }
    }

    private func enter(_ key: String) async {
        if waiting[key] == nil {
            waiting[key] = []
            return
        }
        await withCheckedContinuation { waiting[key]?.append($0) }
    }

    private func leave(_ key: String) {
        if waiting[key]?.isEmpty ?? true {
            waiting[key] = nil
        } else {
            waiting[key]?.removeFirst().resume()
        }
    }
}
