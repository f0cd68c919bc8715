import Foundation

/// The location in a store of the model at a URL: that of its folder or of its manifest.
struct StorePath: Sendable {
    /// In a model's folder: the URL from which it came.
    static let source = ".mlcc-source"
    /// At the end of a folder's name: not all of it is there.
    static let part = ".part"

    /// The URL of the folder, with a trailing slash and without the query.
    let folderURL: String
    /// The name of its folder in the store.
    let name: String
    /// The complete model.
    let path: URL
    /// The download in progress.
    let partialPath: URL
    private let query: String

    /// Throws `MlccError.download` for a URL of another kind.
    init(root: URL, url: URL) throws {
        guard let parts = URLComponents(url: url, resolvingAgainstBaseURL: true),
            let scheme = parts.scheme, ["http", "https"].contains(scheme),
            let host = parts.percentEncodedHost, !host.isEmpty
        else {
            throw download(
                "'\(url.absoluteString)' is no web address; give that of a folder made by "
                    + "`mlcc compile`, such as https://example.org/my-model/")
        }
        var folder = parts.percentEncodedPath
        if folder.hasSuffix(Manifest.name) { folder.removeLast(Manifest.name.count) }
        while folder.hasSuffix("/") { folder.removeLast() }
        let password = parts.percentEncodedPassword.map { ":" + $0 } ?? ""
        let user = parts.percentEncodedUser.map { "\($0)\(password)@" }
        let port = parts.port.map { ":\($0)" } ?? ""
        folderURL = "\(scheme)://\(user ?? "")\(host)\(port)\(folder)/"
        query = parts.percentEncodedQuery.map { "?" + $0 } ?? ""
        name = String(SHA256.hex(Data(folderURL.utf8)).prefix(32))
        path = root.appendingPathComponent(name, isDirectory: true)
        partialPath = root.appendingPathComponent(name + Self.part, isDirectory: true)
    }

    /// The URL of a file. The query of the model's URL, for example a token, is added to each.
    func url(_ path: String) throws -> URL {
        let segments = path.split(separator: "/").map { escaped(String($0)) }
        guard let url = URL(string: folderURL + segments.joined(separator: "/") + query) else {
            throw download("'\(path)' has no address below \(folderURL)")
        }
        return url
    }

    /// Delete the files of another version of the model.
    func removeAllBut(_ entries: [FileEntry]) throws {
        let wanted = Set(entries.map(\.path) + [Self.source])
        for path in try files(below: partialPath) where !wanted.contains(path) {
            try FileManager.default.removeItem(at: partialPath.appendingPathComponent(path))
        }
    }
}

/// The paths of all files below a folder.
func files(below folder: URL) throws -> [String] {
    try FileManager.default.subpathsOfDirectory(atPath: folder.path).filter { path in
        var isFolder: ObjCBool = false
        let whole = folder.appendingPathComponent(path).path
        let isThere = FileManager.default.fileExists(atPath: whole, isDirectory: &isFolder)
        return isThere && !isFolder.boolValue
    }
}
