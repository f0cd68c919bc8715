// swift-tools-version:6.0
import PackageDescription

// What mobile/swift/package.py packs for iOS; its README says how an app uses it.
let package = Package(
    name: "mlcc",
    platforms: [.iOS(.v16)],
    products: [.library(name: "Mlcc", targets: ["Mlcc"])],
    targets: [
        .binaryTarget(name: "CMlcc", path: "CMlcc.xcframework"),
        .binaryTarget(name: "Python", path: "Python.xcframework"),
        .target(
            name: "Mlcc",
            dependencies: ["CMlcc", "Python"],
            resources: [.copy("mlcc.zip")],
            swiftSettings: [.define("MLCC_PACKAGED")]
        ),
    ]
)
