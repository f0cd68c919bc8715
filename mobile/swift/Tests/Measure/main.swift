import Foundation
import Mlcc

// mlcc-measure speed MODEL: serves benchmarks/peers/bindings.py. Each line of standard input is
// `whole`
//     or `stream` and a number of tokens; the reply has the seconds and the tokens.
// mlcc-measure cycles MODEL COUNT: loads, answers and closes COUNT times; prints resident bytes
// after
//     each tenth.

func request(tokens: Int) -> ChatCompletionRequest {
    var request = ChatCompletionRequest(messages: [Message(.user, "Count up from one.")])
    (request.temperature, request.maxTokens, request.ignoreEos) = (0, tokens, true)
    return request
}

func say(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }

func measureSpeed(_ model: URL) async throws {
    let engine = try await Engine.load(model)
    say("ready")
    while let line = readLine() {
        let words = line.split(separator: " ")
        let asked = request(tokens: Int(words[1])!)
        let start = DispatchTime.now().uptimeNanoseconds
        if words[0] == "whole" {
            _ = try await engine.chat.completions.create(asked)
        } else {
            for try await _ in engine.chat.completions.stream(asked) {}
        }
        let seconds = Double(DispatchTime.now().uptimeNanoseconds - start) / 1e9
        say("\(seconds) \(words[1]) 0")
    }
    await engine.close()
}

func residentBytes() throws -> Int {
    let text = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8)
    return Int(text.split(separator: " ")[1])! * 4096
}

func measureCycles(_ model: URL, _ count: Int) async throws {
    for number in 1...count {
        let engine = try await Engine.load(model)
        for try await _ in engine.chat.completions.stream(request(tokens: 4)) {}
        await engine.close()
        if number % max(count / 10, 1) == 0 { say("\(number) \(try residentBytes())") }
    }
}

let words = CommandLine.arguments
let model = URL(fileURLWithPath: words[2])
switch words[1] {
case "speed": try await measureSpeed(model)
default: try await measureCycles(model, Int(words[3])!)
}
