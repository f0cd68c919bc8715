import Foundation

/// Decodes the images of requests. One thread calls it at a time.
public protocol ImageDecoder: Sendable {
    /// The first frame of a file: upright by its EXIF data, colour profiles ignored, what is
    /// transparent on white. `type`: `image/png`, `image/jpeg`, `image/webp` or `image/gif`. An error
    /// refuses the request, with its text.
    func decode(_ file: Data, type: String) throws -> DecodedImage
}

/// An image in 8-bit RGB.
public struct DecodedImage: Sendable, Hashable {
    /// In pixels.
    public let width, height: Int
    /// Three bytes a pixel, row by row.
    public let rgb: [UInt8]

    /// With its fields.
    public init(width: Int, height: Int, rgb: [UInt8]) {
        (self.width, self.height, self.rgb) = (width, height, rgb)
    }

    /// Turned by EXIF's orientation, 1 to 8.
    func turned(_ orientation: Int) -> DecodedImage {
        guard (2...8).contains(orientation) else { return self }
        let (right, bottom) = (width - 1, height - 1)
        let (columns, rows) = orientation < 5 ? (width, height) : (height, width)
        var made: [UInt8] = []
        made.reserveCapacity(rgb.count)
        for y in 0..<rows {
            for x in 0..<columns {
                let (column, row) =
                    switch orientation {
                    case 2: (right - x, y)
                    case 3: (right - x, bottom - y)
                    case 4: (x, bottom - y)
                    case 5: (y, x)
                    case 6: (y, bottom - x)
                    case 7: (right - y, bottom - x)
                    default: (right - y, x)
                    }
                let at = 3 * (row * width + column)
                made += rgb[at..<at + 3]
            }
        }
        return DecodedImage(width: columns, height: rows, rgb: made)
    }
}
