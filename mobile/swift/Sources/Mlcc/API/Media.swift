import Foundation

/// Files as parts of messages, for a model that sees or hears.
extension ContentPart {
    /// A sound in the bytes of a WAV or FLAC file.
    public static func soundFile(_ file: Data) -> ContentPart {
        .audio(AudioPart(inputAudio: InputAudio(data: file.base64EncodedString())))
    }

    /// An image in the bytes of a PNG, JPEG, WebP or GIF file.
    public static func imageFile(_ file: Data) -> ContentPart {
        let url = "data:image/*;base64," + file.base64EncodedString()
        return .image(ImagePart(imageUrl: .text(url)))
    }
}
