import Foundation
import Mlcc

// mlcc-chat MODEL [QUESTION]: answers QUESTION, or each line of the standard input, as a
// conversation.

func write(_ text: String) { FileHandle.standardOutput.write(Data(text.utf8)) }

func fail(_ text: String, _ status: Int32) -> Never {
    FileHandle.standardError.write(Data("mlcc-chat: \(text)\n".utf8))
    exit(status)
}

/// The answer, printed as it is made.
func answer(_ engine: Engine, _ messages: [Message]) async throws -> String {
    var text = ""
    for try await chunk in engine.chat.completions.create(messages: messages, temperature: 0) {
        write(chunk.text)
        text += chunk.text
    }
    write("\n")
    return text
}

func converse(_ engine: Engine) async throws {
    var messages: [Message] = []
    write("> ")
    while let line = readLine() {
        messages.append(Message(.user, line))
        messages.append(Message(.assistant, try await answer(engine, messages)))
        write("> ")
    }
    write("\n")
}

let words = CommandLine.arguments
guard words.count == 2 || words.count == 3 else {
    fail("type: mlcc-chat MODEL [QUESTION]; MODEL is a folder that `mlcc compile` wrote", 2)
}
do {
    let engine = try await Engine.load(URL(fileURLWithPath: words[1]))
    if words.count == 3 {
        _ = try await answer(engine, [Message(.user, words[2])])
    } else {
        try await converse(engine)
    }
    await engine.close()
} catch {
    fail("\(error)", 1)
}
