import Foundation

/// Downloads one model into a folder. Chunks on disk with the right hash are kept; the others are
/// fetched, a few at once, and hashed while they are written.
final class Download: Sendable {
    private let entry: StorePath
    private let fetcher: Fetcher
    private let chunkBytes: Int
    private let total: Int
    private let onProgress: @Sendable (LoadProgress) -> Void
    private let done = Locked(0)
    private static let atOnce = 4

    init(
        _ entry: StorePath, _ fetcher: Fetcher, chunkBytes: Int, total: Int,
        onProgress: @escaping @Sendable (LoadProgress) -> Void
    ) {
        (self.entry, self.fetcher, self.chunkBytes) = (entry, fetcher, chunkBytes)
        (self.total, self.onProgress) = (total, onProgress)
    }

    /// The chunks that are not in the folder. Files are created, and cut to their sizes.
    func missing(_ files: [FileEntry]) throws -> [Chunk] {
        var found: [Chunk] = []
        for file in files {
            let handle = try open(file)
            defer { try? handle.close() }
            for chunk in file.parts(chunkBytes) {
                try Task.checkCancellation()
                if try !isPresent(chunk, handle) { found.append(chunk) }
            }
        }
        return found
    }

    /// Fetches chunks. Throws `MlccError`: `download`, `artifact` or `capacity`.
    func fetch(_ chunks: [Chunk]) async throws {
        var left = chunks[...]
        while let first = left.first {
            let ofFile = Array(left.prefix { $0.entry == first.entry })
            left = left.dropFirst(ofFile.count)
            try await fetchFile(ofFile)
        }
    }

    /// The first chunk shows whether the server has ranges; if not, one response has all chunks.
    private func fetchFile(_ wanted: [Chunk]) async throws {
        let isRanged = try await get(wanted[0]) { response in
            try await self.store(&response, response.isRanged ? [wanted[0]] : wanted)
            return response.isRanged
        }
        guard isRanged else { return }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (number, chunk) in wanted.dropFirst().enumerated() {
                if number >= Self.atOnce { try await group.next() }
                group.addTask {
                    try await self.get(chunk) { try await self.store(&$0, [chunk]) }
                }
            }
            try await group.waitForAll()
        }
    }

    /// A chunk with a wrong hash is fetched once more: a proxy may have sent a stale copy.
    private func get<Result>(
        _ chunk: Chunk, _ use: (inout Fetcher.Response) async throws -> Result
    ) async throws -> Result {
        let file = chunk.entry
        let range = chunk.range.count < file.bytes ? chunk.range : nil
        let url = try entry.url(file.path)
        do {
            return try await fetcher.get(url, path: file.path, range: range, use: use)
        } catch is DamagedChunk {
            do {
                return try await fetcher.get(url, path: file.path, range: range, use: use)
            } catch let damaged as DamagedChunk {
                throw damaged.error
            }
        }
    }

    /// Writes these chunks, in order, from a response that contains them.
    private func store(_ response: inout Fetcher.Response, _ chunks: [Chunk]) async throws {
        let handle = try open(chunks[0].entry)
        defer { try? handle.close() }
        var position = response.start
        for chunk in chunks {
            try await response.body.read(chunk.range.lowerBound - position) { _ in }
            var hash = SHA256()
            try full { try handle.seek(toOffset: UInt64(chunk.range.lowerBound)) }
            try await response.body.read(chunk.range.count) { data in
                hash.update(data)
                try full { try handle.write(contentsOf: data) }
            }
            position = chunk.range.upperBound
            if hash.finish() != chunk.hash { throw DamagedChunk(chunk: chunk) }
            report(chunk)
        }
    }

    private func isPresent(_ chunk: Chunk, _ handle: FileHandle) throws -> Bool {
        var hash = SHA256()
        try handle.seek(toOffset: UInt64(chunk.range.lowerBound))
        var left = chunk.range.count
        while left > 0 {
            guard let data = try handle.read(upToCount: min(left, 1 << 20)), !data.isEmpty else {
                return false
            }
            hash.update(data)
            left -= data.count
        }
        guard hash.finish() == chunk.hash else { return false }
        report(chunk)
        return true
    }

    private func report(_ chunk: Chunk) {
        let now = done.withLock { done in
            done += chunk.range.count
            return done
        }
        onProgress(.download(done: now, total: total))
    }

    /// Opens a file of the model for reading and writing, and creates it if needed.
    private func open(_ file: FileEntry) throws -> FileHandle {
        let url = entry.partialPath.appendingPathComponent(file.path)
        return try full {
            let manager = FileManager.default
            try manager.createDirectory(
                at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
            if !manager.fileExists(atPath: url.path) { try Data().write(to: url) }
            let handle = try FileHandle(forUpdating: url)
            if try handle.seekToEnd() > UInt64(file.bytes) {
                try handle.truncate(atOffset: UInt64(file.bytes))
            }
            return handle
        }
    }

    /// Turns errors of writing into `MlccError.capacity`.
    private func full<Result>(_ body: () throws -> Result) throws -> Result {
        do {
            return try body()
        } catch {
            throw MlccError.capacity(
                message: "the model cannot be written (\(error.localizedDescription)); free some disk "
                    + "and load it again: what has arrived is kept", code: "disk_full")
        }
    }
}

/// The hash of a chunk differs from the manifest's.
private struct DamagedChunk: Error {
    let chunk: Chunk

    var error: MlccError {
        artifact(
            "\(chunk.entry.path) is damaged in bytes \(chunk.range.lowerBound) to "
                + "\(chunk.range.upperBound): they are not the ones that the manifest lists; copy the "
                + "model to its server again")
    }
}
