import Foundation

/// Files as parts of messages, for a model that sees or hears.
extension ContentPart {
    /// A sound in the bytes of a WAV or FLAC file.
    public static func soundFile(_ file: Data) -> ContentPart {
        .audio(AudioPart(inputAudio: InputAudio(data: file.base64EncodedString())))
    }

    /// A sound in samples of one channel, `rate` a second.
    public static func soundSamples(_ samples: [Int16], rate: Int) -> ContentPart {
        .soundFile(wav(samples, rate: rate))
    }

    /// The bytes of a WAV file with samples of one channel, `rate` a second.
    public static func wav(_ samples: [Int16], rate: Int) -> Data {
        let size = 2 * samples.count
        var file = Data("RIFF".utf8)
        func put<Value: FixedWidthInteger>(_ value: Value) {
            withUnsafeBytes(of: value.littleEndian) { file.append(contentsOf: $0) }
        }
        put(UInt32(36 + size))
        file.append(Data("WAVEfmt ".utf8))
        put(UInt32(16))
        put(UInt16(1))
        put(UInt16(1))
        put(UInt32(rate))
        put(UInt32(2 * rate))
        put(UInt16(2))
        put(UInt16(16))
        file.append(Data("data".utf8))
        put(UInt32(size))
        for sample in samples { put(sample) }
        return file
    }

    /// An image in the bytes of a PNG, JPEG, WebP or GIF file.
    public static func imageFile(_ file: Data) -> ContentPart {
        let url = "data:image/*;base64," + file.base64EncodedString()
        return .image(ImagePart(imageUrl: .text(url)))
    }
}
