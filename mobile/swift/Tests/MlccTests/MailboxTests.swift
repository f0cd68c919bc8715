import Foundation
import Testing

@testable import Mlcc

/// The answer between library and reader; no library runs.
@Suite struct MailboxTests {
    private let head = Mailbox.Head(status: 200, headers: [:])

    @Test func piecesAreReadInOrder() async throws {
        let mailbox = Mailbox()
        mailbox.put(head)
        mailbox.put(Data("a".utf8))
        mailbox.put(Data("b".utf8))
        #expect(try await mailbox.head().status == 200)
        #expect(try await mailbox.next() == Data("ab".utf8))  // joined
        mailbox.put(Data("c".utf8))
        mailbox.finish(.success(()))
        #expect(try await mailbox.next() == Data("c".utf8))
        #expect(try await mailbox.next() == nil)
        #expect(try await mailbox.next() == nil)
    }

    @Test func aWaitingReaderIsWoken() async throws {
        let mailbox = Mailbox()
        let reading = Task { try await APIBody(mailbox).whole() }
        for _ in 0..<100 {
            mailbox.put(Data("x".utf8))
            await Task.yield()
        }
        mailbox.finish(.success(()))
        #expect(try await reading.value.count == 100)
    }

    @Test func aSlowReaderIsBounded() async throws {
        let mailbox = Mailbox(limit: 1000)
        let cancelled = Locked(0)
        mailbox.onCancel { cancelled.withLock { $0 += 1 } }
        for _ in 0..<100 { mailbox.put(Data(count: 100)) }
        #expect(cancelled.withLock { $0 } == 1)
        await #expect(throws: MlccError.self) { try await mailbox.next() }
    }

    @Test func whatHasArrivedIsReadBeforeAFailure() async throws {
        let mailbox = Mailbox()
        mailbox.put(Data("a".utf8))
        mailbox.finish(.failure(MlccError.engineClosed))
        #expect(try await mailbox.next() == Data("a".utf8))
        await #expect(throws: MlccError.engineClosed) { try await mailbox.next() }
        await #expect(throws: MlccError.engineClosed) { try await mailbox.head() }
    }

    @Test func aCancelledTaskCancelsTheCall() async {
        let mailbox = Mailbox()
        let cancelled = Locked(false)
        mailbox.onCancel { cancelled.withLock { $0 = true } }
        let reading = Task { try await mailbox.head() }
        reading.cancel()
        await #expect(throws: CancellationError.self) { try await reading.value }
        #expect(cancelled.withLock { $0 })
    }

    @Test func aBodyThatIsDroppedCancelsTheCall() {
        let mailbox = Mailbox()
        let cancelled = Locked(0)
        mailbox.onCancel { cancelled.withLock { $0 += 1 } }
        do { _ = APIBody(mailbox) }
        #expect(cancelled.withLock { $0 } == 1)
        let whole = Mailbox()
        whole.onCancel { cancelled.withLock { $0 += 1 } }
        whole.finish(.success(()))
        do { _ = APIBody(whole) }
        #expect(cancelled.withLock { $0 } == 1)  // it was complete
    }
}
