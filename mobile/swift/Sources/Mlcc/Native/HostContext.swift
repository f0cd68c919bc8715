import CMlcc
import Foundation

/// The host's part of an engine: its callbacks find it in their `context`.
final class HostContext: Sendable {
    let calls: CallTable
    let tokenizer: (any Tokenizer)?
    let images: (any ImageDecoder)?
    let onEvent: @Sendable (mlcc_event) -> Void

    init(
        calls: CallTable, tokenizer: (any Tokenizer)?, images: (any ImageDecoder)?,
        onEvent: @escaping @Sendable (mlcc_event) -> Void
    ) {
        (self.calls, self.tokenizer) = (calls, tokenizer)
        (self.images, self.onEvent) = (images, onEvent)
    }

    /// The struct of `mlcc_create`. Its callbacks are functions of this file: the optimizer of
    /// Swift 6.0.3 crashes on C function pointers made of closures that call a throwing generic
    /// function.
    func host(_ context: UnsafeMutableRawPointer) -> mlcc_host {
        var host = mlcc_host()
        host.size = UInt32(MemoryLayout<mlcc_host>.size)
        host.abi = UInt32(MLCC_ABI_VERSION)
        host.context = context
        host.events = deliverEvents
        host.released = releaseContext
        if tokenizer != nil {
            host.encode = encodeText
            host.decode = decodeIds
            host.special_tokens = giveSpecialTokens
        }
        if images != nil { host.decode_image = decodeImage }
        return host
    }

    static func of(_ context: UnsafeMutableRawPointer?) -> HostContext {
        Unmanaged<HostContext>.fromOpaque(context!).takeUnretainedValue()
    }
}

private func deliverEvents(
    _ context: UnsafeMutableRawPointer?, _: mlcc_engine, _ events: UnsafePointer<mlcc_event>?,
    _ count: Int
) {
    let host = HostContext.of(context)
    for event in UnsafeBufferPointer(start: events, count: count) {
        if event.call == 0 { host.onEvent(event) } else { host.calls.deliver(event) }
    }
}

/// The last callback.
private func releaseContext(_ context: UnsafeMutableRawPointer?) {
    HostContext.of(context).calls.close()
    Unmanaged<HostContext>.fromOpaque(context!).release()
}

private func encodeText(
    _ context: UnsafeMutableRawPointer?, _ text: UnsafePointer<CChar>?, _ size: Int,
    _ special: Int32, _ answer: OpaquePointer?
) -> Int32 {
    let text = String(decoding: UnsafeRawBufferPointer(start: text, count: size), as: UTF8.self)
    return give(answer) {
        let ids = try HostContext.of(context).tokenizer!.encode(text, special: special != 0)
        return ids.withUnsafeBytes { Data($0) }
    }
}

private func decodeIds(
    _ context: UnsafeMutableRawPointer?, _ ids: UnsafePointer<Int32>?, _ count: Int,
    _ answer: OpaquePointer?
) -> Int32 {
    let ids = Array(UnsafeBufferPointer(start: ids, count: count))
    return give(answer) { Data(try HostContext.of(context).tokenizer!.decode(ids).utf8) }
}

private func giveSpecialTokens(
    _ context: UnsafeMutableRawPointer?, _ answer: OpaquePointer?
) -> Int32 {
    give(answer) { try JSON.encode(HostContext.of(context).tokenizer!.specialTokens) }
}

private func decodeImage(
    _ context: UnsafeMutableRawPointer?, _ file: UnsafeRawPointer?, _ size: Int,
    _ type: UnsafePointer<CChar>?, _ answer: OpaquePointer?
) -> Int32 {
    let (file, type) = (Data(bytes: file!, count: size), String(cString: type!))
    return give(answer) {
        let image = try HostContext.of(context).images!.decode(file, type: type)
        var data = Data()
        for side in [image.width, image.height] {
            withUnsafeBytes(of: UInt32(side)) { data.append(contentsOf: $0) }
        }
        data.append(contentsOf: image.rgb)
        return data
    }
}

/// Answers a callback with data, or with the error as text and 1.
private func give(_ answer: OpaquePointer?, _ make: () throws -> Data) -> Int32 {
    do {
        let data = try make()
        data.withUnsafeBytes { mlcc_give(answer, $0.baseAddress, $0.count) }
        return 0
    } catch {
        let text = "\(error)"
        mlcc_give(answer, text, text.utf8.count)
        return 1
    }
}
