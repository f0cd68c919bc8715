import Testing

@testable import Mlcc

@Suite struct ImageDecoderTests {
    @Test(arguments: [
        (1, "012345"), (2, "210543"), (3, "543210"), (4, "345012"),
        (5, "031425"), (6, "304152"), (7, "524130"), (8, "251403"),
    ])
    func exifTurnsAnImage(_ orientation: Int, _ pixels: String) {
        let image = DecodedImage(width: 3, height: 2, rgb: (0..<18).map { $0 / 3 })  // 0 1 2, 3 4 5
        let made = image.turned(orientation)
        #expect(made.width == (orientation < 5 ? 3 : 2))
        #expect(made.rgb == pixels.utf8.flatMap { [UInt8](repeating: $0 - 48, count: 3) })
    }
}
