import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// A server with OpenAI's API: `mlcc serve`, or another. It has the endpoints of an ``Engine``.
///
///     let server = RemoteServer(URL(string: "http://127.0.0.1:8000")!)
///     let answer = try await server.chat.completions.create(request)
public struct RemoteServer: Transport {
    /// The server's address, without `/v1`.
    public let url: URL
    /// Sent as a bearer token; nil: none.
    public let apiKey: String?
    /// Seconds without a byte from the server, after which a request fails.
    public let idleSeconds: Double

    /// With its fields. A `/v1` at the end of the address is removed, as OpenAI's clients have it.
    public init(_ url: URL, apiKey: String? = nil, idleSeconds: Double = 600) {
        var text = url.absoluteString
        while text.hasSuffix("/") { text.removeLast() }
        if text.hasSuffix("/v1") { text.removeLast(3) }
        self.url = URL(string: text) ?? url
        (self.apiKey, self.idleSeconds) = (apiKey, idleSeconds)
    }

    /// Sends a request. Throws ``MlccError/connection(message:code:)`` if the server cannot be
    /// reached.
    public func send(_ request: APIRequest) async throws -> APIResponse {
        guard let address = URL(string: url.absoluteString + request.path) else {
            throw failure("'\(request.path)' is no path")
        }
        var sent = URLRequest(url: address, timeoutInterval: idleSeconds)
        sent.httpMethod = request.method
        if !request.body.isEmpty { sent.httpBody = request.body }
        for (name, value) in request.headers { sent.setValue(value, forHTTPHeaderField: name) }
        if let apiKey { sent.setValue("Bearer \(apiKey)", forHTTPHeaderField: "authorization") }
        let mailbox = HTTPClient.shared.send(sent)
        let body = APIBody(mailbox) { error in
            (error as? ConnectionError).map { failure($0.message) } ?? error
        }
        do {
            let head = try await mailbox.head()
            return APIResponse(status: head.status, headers: head.headers, body: body)
        } catch let error as ConnectionError {
            throw failure(error.message)
        }
    }

    private func failure(_ reason: String) -> MlccError {
        .connection(
            message: "the server at \(url.absoluteString) cannot be reached or broke off (\(reason)); "
                + "check its address and that it runs", code: "connection")
    }
}
