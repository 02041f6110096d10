// swift-tools-version: 6.1
import PackageDescription

// Where the library is: WEIR_DIR names a folder with include/ and lib/; else pkg-config finds weir.pc. On Apple
// platforms the same, with libweir.dylib, which an application has in the Frameworks folder of its bundle.
let folder = Context.environment["WEIR_DIR"].flatMap { $0.isEmpty ? nil : $0 }
let swiftSettings: [SwiftSetting] = folder.map { [.unsafeFlags(["-Xcc", "-I\($0)/include"])] } ?? []
let linkerSettings: [LinkerSetting] = folder.map {
    [.unsafeFlags(["-L\($0)/lib", "-Xlinker", "-rpath", "-Xlinker", "\($0)/lib"])]
} ?? [.unsafeFlags(["-Xlinker", "-rpath", "-Xlinker", "@executable_path/../Frameworks"], .when(platforms: [.macOS]))]

func program(_ name: String, _ path: String, _ uses: [Target.Dependency] = ["Weir"]) -> Target {
    .executableTarget(name: name, dependencies: uses, path: path, swiftSettings: swiftSettings,
                      linkerSettings: linkerSettings)
}

let package = Package(
    name: "Weir",
    platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .visionOS(.v2)],
    products: [.library(name: "Weir", targets: ["Weir"])],
    targets: [
        .systemLibrary(name: "CWeir", pkgConfig: folder == nil ? "weir" : nil),
        .target(name: "Weir", dependencies: ["CWeir"], swiftSettings: swiftSettings),
        .testTarget(name: "WeirTests", dependencies: ["Weir"], swiftSettings: swiftSettings,
                    linkerSettings: linkerSettings),
        program("hello", "Examples/hello"), program("chat", "Examples/chat"), program("budget", "Examples/budget"),
        program("json", "Examples/json"), program("weir-bench", "Bench", ["Weir", "CWeir"]),
    ],
    swiftLanguageModes: [.v6]
)
