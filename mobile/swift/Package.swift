// swift-tools-version:6.0
import PackageDescription

// For Linux; package.py packs for iOS. Where `python mobile/c/build.py` wrote libmlcc.so.
let libraries =
    Context.environment["MLCC_LIBRARIES"] ?? "\(Context.packageDirectory)/../../build/mobile/c"

let linker: [LinkerSetting] = [
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
        .systemLibrary(name: "CMlcc"),
        .target(name: "Mlcc", dependencies: ["CMlcc"], linkerSettings: linker),
        .executableTarget(name: "mlcc-chat", dependencies: ["Mlcc"]),
        .executableTarget(name: "mlcc-relay", dependencies: ["Mlcc"], path: "Tests/Relay"),
        .executableTarget(name: "mlcc-measure", dependencies: ["Mlcc"], path: "Tests/Measure"),
        .testTarget(name: "MlccTests", dependencies: ["Mlcc"]),
    ]
)
