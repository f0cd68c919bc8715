// swift-tools-version:6.0
import Foundation
import PackageDescription

// Where `python mobile/c/build.py` wrote libmlcc.so, for Linux.
let libraries =
    Context.environment["MLCC_LIBRARIES"] ?? "\(Context.packageDirectory)/../../build/mobile/c"

// Apple's systems take the library from CMlcc.xcframework, beside this file.
let framework = "CMlcc.xcframework"
let hasFramework = FileManager.default.fileExists(
    atPath: "\(Context.packageDirectory)/\(framework)")
let cmlcc: Target =
    hasFramework ? .binaryTarget(name: "CMlcc", path: framework) : .systemLibrary(name: "CMlcc")
let linker: [LinkerSetting] =
    hasFramework
    ? []
    : [
        .unsafeFlags([
            "-L\(libraries)", "-Xlinker", "-rpath", "-Xlinker", libraries,
            // libpython lies elsewhere, and libmlcc knows where
            "-Xlinker", "--allow-shlib-undefined",
        ])
    ]

let package = Package(
    name: "mlcc",
    platforms: [.iOS(.v16), .macOS(.v13)],
    products: [
        .library(name: "Mlcc", targets: ["Mlcc"]),
        .executable(name: "mlcc-chat", targets: ["mlcc-chat"]),
    ],
    targets: [
        cmlcc,
        .target(name: "Mlcc", dependencies: ["CMlcc"], linkerSettings: linker),
        .executableTarget(name: "mlcc-chat", dependencies: ["Mlcc"]),
        .executableTarget(name: "mlcc-relay", dependencies: ["Mlcc"], path: "Tests/Relay"),
        .executableTarget(name: "mlcc-measure", dependencies: ["Mlcc"], path: "Tests/Measure"),
        .testTarget(name: "MlccTests", dependencies: ["Mlcc"]),
    ]
)
