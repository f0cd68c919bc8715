// A chat app in SwiftUI over the package Mlcc. Untried: it was parsed on Linux, and neither
// type-checked nor run. Put it into an app target of Xcode that depends on Mlcc.

import Mlcc
import SwiftUI

/// The address of a folder that `mlcc compile` wrote.
let modelURL = URL(string: "https://example.org/my-model/")!

@main
struct ChatApp: App {
    var body: some Scene {
        WindowGroup { ChatView() }
    }
}

/// A conversation, and the engine that answers.
@MainActor
final class Chat: ObservableObject {
    @Published private(set) var messages: [ChatMessage] = []
    @Published private(set) var progress: Double?
    @Published private(set) var problem: String?
    @Published private(set) var isAnswering = false
    private var engine: Engine?
    private var lifecycle: EngineLifecycle?
    private var answer: Task<Void, Never>?

    var isReady: Bool { engine != nil }

    func load() async {
        var options = EngineOptions()
        options.unloadInBackground = true
        options.onProgress = { [weak self] progress in
            let part = Double(progress.done) / Double(max(progress.total, 1))
            Task { @MainActor in self?.progress = part }
        }
        do {
            let made = try await Engine.load(modelURL, options: options)
            (engine, lifecycle, progress) = (made, EngineLifecycle(made), nil)
        } catch {
            problem = "\(error)"
        }
    }

    func send(_ text: String) {
        guard let engine else { return }
        messages.append(ChatMessage(role: .user, text: text))
        let history = messages.map { Message($0.role, $0.text) }
        messages.append(ChatMessage(role: .assistant, text: ""))
        (isAnswering, problem) = (true, nil)
        answer = Task {
            do {
                for try await chunk in engine.chat.completions.create(messages: history) {
                    messages[messages.count - 1].text += chunk.text
                }
            } catch is CancellationError {
            } catch {
                problem = "\(error)"
            }
            isAnswering = false
        }
    }

    func stop() { answer?.cancel() }
}

struct ChatMessage: Identifiable {
    let id = UUID()
    let role: Role
    var text: String
}

struct ChatView: View {
    @StateObject private var chat = Chat()
    @State private var draft = ""

    var body: some View {
        VStack(spacing: 0) {
            if let problem = chat.problem { Text(problem).foregroundStyle(.red).padding() }
            if let progress = chat.progress { ProgressView(value: progress).padding() }
            messages
            input
        }
        .task { await chat.load() }
    }

    private var messages: some View {
        ScrollViewReader { reader in
            ScrollView {
                LazyVStack(alignment: .leading, spacing: 12) {
                    ForEach(chat.messages) { message in
                        MessageView(message: message).id(message.id)
                    }
                }
                .padding()
            }
            .onChange(of: chat.messages.last?.text) { _ in
                reader.scrollTo(chat.messages.last?.id, anchor: .bottom)
            }
        }
    }

    private var input: some View {
        HStack {
            TextField("Message", text: $draft, axis: .vertical).textFieldStyle(.roundedBorder)
            if chat.isAnswering {
                Button("Stop") { chat.stop() }
            } else {
                Button("Send") {
                    chat.send(draft)
                    draft = ""
                }
                .disabled(!chat.isReady || draft.isEmpty)
            }
        }
        .padding()
    }
}

struct MessageView: View {
    let message: ChatMessage

    var body: some View {
        Text(message.text)
            .padding(10)
            .background(message.role == .user ? Color.accentColor.opacity(0.2) : Color.gray.opacity(0.15))
            .clipShape(RoundedRectangle(cornerRadius: 12))
            .frame(maxWidth: .infinity, alignment: message.role == .user ? .trailing : .leading)
    }
}
