import Foundation

/// The fields of `mlcc.json` that a download needs. The engine checks all of it again.
struct Manifest: Decodable, Sendable {
    static let name = "mlcc.json"
    static let maxBytes = 64 << 20

    let files: [FileEntry]

    /// Total size of all files.
    var bytes: Int { files.reduce(0) { $0 + $1.bytes } }

    /// Checks the checksum, paths and sizes. source: for errors. Throws `MlccError.artifact`.
    static func parse(_ data: Data, source: String, chunkBytes: Int) throws -> Manifest {
        try checkChecksum(data, source)
        guard let manifest = try? JSON.decode(Manifest.self, data) else { throw foreign(source) }
        for file in manifest.files { try file.check(chunkBytes) }
        let names = Set(manifest.files.map { $0.path.lowercased() })
        if names.count < manifest.files.count {
            throw artifact("the manifest lists a file twice; get the model from its author")
        }
        return manifest
    }

    /// The checksum is of the file's own bytes with 64 zeros in its place.
    private static func checkChecksum(_ data: Data, _ source: String) throws {
        guard let text = String(data: data, encoding: .utf8),
            let found = text.range(
                of: #""checksum":\s*"[0-9a-f]{64}"\s*\}\s*$"#, options: .regularExpression),
            let digits = text.range(of: "[0-9a-f]{64}", options: .regularExpression, range: found)
        else { throw foreign(source) }
        let zeros = String(repeating: "0", count: 64)
        let blank = text.replacingCharacters(in: digits, with: zeros)
        if SHA256.hex(Data(blank.utf8)) != text[digits] {
            throw artifact("\(source) is damaged: its checksum differs; copy the model again")
        }
    }

    private static func foreign(_ source: String) -> MlccError {
        artifact(
            "\(source) is no manifest of a compiled model; check the address: it is that of a folder "
                + "made by `mlcc compile`")
    }
}

/// A file of the model: its size, and the SHA-256 of each chunk.
struct FileEntry: Decodable, Hashable, Sendable {
    let path: String
    let bytes: Int
    let chunks: [String]

    /// The chunks of the file, in order.
    func parts(_ chunkBytes: Int) -> [Chunk] {
        chunks.enumerated().map { index, hash in
            let start = index * chunkBytes
            return Chunk(entry: self, range: start..<min(start + chunkBytes, bytes), hash: hash)
        }
    }

    /// Throws `MlccError.artifact` unless it is sound and stays in its folder.
    func check(_ chunkBytes: Int) throws {
        let segments = path.split(separator: "/", omittingEmptySubsequences: false)
        let isUnsafe = path.unicodeScalars.contains {
            $0.value < 32 || "\\:*?\"<>|".contains(Character($0))
        }
        let leaves = segments.contains { ["", ".", ".."].contains($0) }
        if isUnsafe || leaves || path == Manifest.name {
            let shown = String(path.prefix(200).map { $0 < " " ? "?" : $0 })
            throw artifact(
                "the manifest names the unsafe path '\(shown)'; get the model from its author")
        }
        if bytes < 0 || bytes > 1 << 50 || chunks.count != (bytes + chunkBytes - 1) / chunkBytes {
            throw artifact("the manifest describes \(path) wrongly; get the model from its author")
        }
        let isHash = { (text: String) in
            text.count == 64 && text.allSatisfy { "0123456789abcdef".contains($0) }
        }
        if !chunks.allSatisfy(isHash) {
            throw artifact(
                "the manifest has no sound hashes of \(path); get the model from its author")
        }
    }
}

/// A range of a file, with its hash.
struct Chunk: Sendable {
    let entry: FileEntry
    let range: Range<Int>
    let hash: String
}

func artifact(_ message: String) -> MlccError { .artifact(message: message, code: "artifact") }

func download(_ message: String) -> MlccError { .download(message: message, code: "download") }
