#if canImport(ImageIO)
    import CoreGraphics
    import Foundation
    import ImageIO

    /// Decodes images as Apple's systems do. JPEG and lossy WebP may differ by a level from those of
    /// a server.
    public struct AppleImageDecoder: ImageDecoder {
        /// The file cannot be read.
        struct Unreadable: Error, CustomStringConvertible {
            let type: String
            var description: String { "this system cannot read this \(type)" }
        }

        /// The decoder.
        public init() {}

        /// The pixels of a file, upright; throws for one that the system cannot read.
        public func decode(_ file: Data, type: String) throws -> DecodedImage {
            guard let source = CGImageSourceCreateWithData(file as CFData, nil),
                let image = CGImageSourceCreateImageAtIndex(source, 0, nil),
                let decoded = onWhite(image)
            else { throw Unreadable(type: type) }
            let found = CGImageSourceCopyPropertiesAtIndex(source, 0, nil) as? [CFString: Any]
            let orientation = found?[kCGImagePropertyOrientation] as? NSNumber
            return decoded.turned(orientation?.intValue ?? 1)
        }

        /// In the image's own colours, which a context of another space would convert.
        private func onWhite(_ image: CGImage) -> DecodedImage? {
            let (width, height) = (image.width, image.height)
            let own = image.colorSpace.flatMap { $0.model == .rgb ? $0 : nil }
            guard
                let space = own ?? CGColorSpace(name: CGColorSpace.sRGB),
                let context = CGContext(
                    data: nil, width: width, height: height, bitsPerComponent: 8,
                    bytesPerRow: 4 * width, space: space,
                    bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)
            else { return nil }
            let whole = CGRect(x: 0, y: 0, width: width, height: height)
            context.setFillColor(gray: 1, alpha: 1)
            context.fill(whole)
            context.draw(image, in: whole)
            guard let pixels = context.data else { return nil }
            let bytes = UnsafeRawBufferPointer(start: pixels, count: 4 * width * height)
            var rgb: [UInt8] = []
            rgb.reserveCapacity(3 * width * height)
            for at in stride(from: 0, to: bytes.count, by: 4) { rgb += bytes[at..<at + 3] }
            return DecodedImage(width: width, height: height, rgb: rgb)
        }
    }
#endif
