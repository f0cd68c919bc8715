import Foundation

/// `engine.audio`: of a model that transcribes, such as Whisper.
public struct Audio: Sendable {
    let transport: any Transport

    /// Transcripts in the language that is spoken.
    public var transcriptions: Transcriptions {
        Transcriptions(transport: transport, path: "/v1/audio/transcriptions")
    }

    /// Transcripts in English.
    public var translations: Transcriptions {
        Transcriptions(transport: transport, path: "/v1/audio/translations")
    }
}

/// One of the paths for recordings.
public struct Transcriptions: Sendable {
    let transport: any Transport
    let path: String

    /// The whole transcript of a recording.
    ///
    /// - Parameters:
    ///   - file: the bytes of a WAV or FLAC file.
    ///   - language: of the recording, such as `de`; nil: the model finds it.
    ///   - prompt: text that came before: spellings of names, style.
    ///   - segments: whether the answer has segments with their times.
    ///   - fields: other fields of the API by their names, such as `temperature`.
    /// - Throws: ``MlccError/api(status:error:)`` if the model does not transcribe.
    public func create(
        _ file: Data, language: String? = nil, prompt: String? = nil, segments: Bool = false,
        fields: [String: String] = [:]
    ) async throws -> Transcription {
        var given = fields
        if let language { given["language"] = language }
        if let prompt { given["prompt"] = prompt }
        if segments { given["response_format"] = "verbose_json" }
        let form = Form(given, file: file)
        let request = APIRequest("POST", path, headers: form.headers, body: form.body)
        let response = try await transport.send(request)
        let data = try await response.body.whole()
        guard response.status == 200 else { throw MlccError.ofAnswer(response.status, data) }
        return try JSON.answer(Transcription.self, data)
    }
}

/// A form with a file, as multipart/form-data (RFC 7578).
struct Form {
    let headers: [String: String]
    let body: Data

    init(_ fields: [String: String], file: Data, boundary: String = "mlcc-\(UUID().uuidString)") {
        let field = "--\(boundary)\r\nContent-Disposition: form-data; name="
        var body = Data()
        for (name, value) in fields.sorted(by: { $0.key < $1.key }) {
            body.append(Data("\(field)\"\(name)\"\r\n\r\n\(value)\r\n".utf8))
        }
        body.append(Data("\(field)\"file\"; filename=\"recording\"\r\n\r\n".utf8))
        body.append(file)
        body.append(Data("\r\n--\(boundary)--\r\n".utf8))
        self.body = body
        headers = ["content-type": "multipart/form-data; boundary=\(boundary)"]
    }
}
