import Foundation
import Testing

@testable import Mlcc

/// JSON of requests and answers; no library runs.
@Suite struct ApiTests {
    private func json(_ value: some Encodable) throws -> String {
        String(decoding: try JSON.encode(value), as: UTF8.self)
    }

    private func value<Value: Decodable>(_ type: Value.Type, _ json: String) throws -> Value {
        try JSON.decode(type, Data(json.utf8))
    }

    @Test func absentIsNotNull() throws {
        let request = ChatCompletionRequest(messages: [Message(.user, "hi")])
        #expect(try json(request) == #"{"messages":[{"content":"hi","role":"user"}]}"#)
    }

    @Test func nullAndUnknownFieldsOfAnAnswerAreNoErrors() throws {
        let text = #"{"index":0,"delta":{"content":null,"new":1},"finish_reason":null,"logprobs":null}"#
        let choice = try value(ChatChunkChoice.self, text)
        #expect(choice.delta.content == nil && choice.finishReason == nil)
    }

    @Test(arguments: [#""a""#, #"["a","b"]"#, "[1,2]", "[[1],[2]]"])
    func unionsAreWrittenAsTheyAreRead(_ text: String) throws {
        #expect(try json(value(Prompt.self, text)) == text)
    }

    @Test func unionsAreToldApart() throws {
        #expect(try value(Prompt.self, "[1]") == .tokens([1]))
        #expect(try value(Prompt.self, #"["a"]"#) == .texts(["a"]))
        #expect(throws: DecodingError.self) { try value(Prompt.self, "{}") }
        let named = #"{"function":{"name":"f"},"type":"function"}"#
        #expect(try value(ToolChoice.self, named) == .named(NamedTool(function: .init(name: "f"))))
        #expect(try value(ToolChoice.self, #""auto""#) == .auto)
    }

    @Test func imagesArePartsOfMessages() throws {
        let image = ContentPart.image(ImagePart(imageUrl: "data:image/png;base64,AA=="))
        let message = Message(role: .user, content: .parts([image, .text(.init(text: "What?"))]))
        let text = try json(message)
        #expect(text.contains(#"{"image_url":"data:image/png;base64,AA==","type":"image_url"}"#))
        #expect(try value(Message.self, text) == message)
    }

    @Test func filesArePartsOfMessages() throws {
        let file = Data([0x52, 0x49, 0x46, 0x46])
        let sound = #"{"input_audio":{"data":"UklGRg=="},"type":"input_audio"}"#
        let image = #"{"image_url":"data:image/*;base64,UklGRg==","type":"image_url"}"#
        #expect(try json(ContentPart.soundFile(file)) == sound)
        #expect(try json(ContentPart.imageFile(file)) == image)
        #expect(try value(ContentPart.self, sound) == .soundFile(file))
    }

    @Test func samplesAreAWav() {
        let file = ContentPart.wav([0, 16384, -16384], rate: 16000)
        #expect(file.count == 50 && file.prefix(8) == Data("RIFF".utf8) + Data([42, 0, 0, 0]))
        #expect(file.suffix(6) == Data([0, 0, 0, 64, 0, 192]))
    }

    @Test func aRecordingIsAForm() {
        let form = Form(["language": "de", "a": "1"], file: Data("RIFF".utf8), boundary: "x")
        let field = "--x\r\nContent-Disposition: form-data; name="
        let expected =
            "\(field)\"a\"\r\n\r\n1\r\n\(field)\"language\"\r\n\r\nde\r\n"
            + "\(field)\"file\"; filename=\"recording\"\r\n\r\nRIFF\r\n--x--\r\n"
        #expect(String(decoding: form.body, as: UTF8.self) == expected)
        #expect(form.headers == ["content-type": "multipart/form-data; boundary=x"])
    }

    @Test func anUnknownWordIsKept() throws {
        #expect(try value(FinishReason.self, #""tomorrow""#).rawValue == "tomorrow")
        #expect(FinishReason.toolCalls == FinishReason(rawValue: "tool_calls"))
        let item = try value(OutputItem.self, #"{"type":"dance","steps":3}"#)
        #expect(item == .other(["type": "dance", "steps": 3]))
        #expect(try json(item) == #"{"steps":3,"type":"dance"}"#)
    }

    @Test func namesOfTokensAreNumbers() throws {
        var request = ChatCompletionRequest(messages: [])
        request.logitBias = [5: -1.5]
        #expect(try json(request) == #"{"logit_bias":{"5":-1.5},"messages":[]}"#)
    }

    @Test func anyJSONIsWrittenAsItIsRead() throws {
        let text = #"[null,true,1,1.5,"ü",[],{"a":{"b":9007199254740993}}]"#
        #expect(try json(value(JSONValue.self, text)) == text)
    }

    @Test func eventsAreCutAnywhere() {
        let text = Data("data: {\"a\":1}\n\ndata:{\"b\":\"ü\"}\r\n\r\n: ping\n\ndata: [DONE]\n\n".utf8)
        for cut in 0...text.count {
            var lines = EventLines()
            var found: [Data] = []
            for piece in [text[..<cut], text[cut...]] {
                lines.add(Data(piece))
                while let line = lines.next() { found.append(line) }
            }
            #expect(found.map { String(decoding: $0, as: UTF8.self) } == [#"{"a":1}"#, #"{"b":"ü"}"#])
        }
    }

    @Test func codesBecomeErrors() {
        func error(_ code: Int32, _ body: String = "") -> any Error {
            MlccError.ofLibrary(code, Data(body.utf8))
        }
        let body = #"{"error":{"message":"damaged","type":"x","param":null,"code":"c"}}"#
        #expect(error(2) is CancellationError)
        #expect(error(20, body) as? MlccError == .artifact(message: "damaged", code: "c"))
        #expect((error(3) as? MlccError)?.message.contains("Engine.load") == true)
        #expect((error(77) as? MlccError)?.code == "bug")
        let refused = MlccError.ofAnswer(502, Data("<html>".utf8))
        #expect(refused.message == "the answer was 502: <html>")
    }
}
