// Untried: Gradle and Google's Maven were not available.
plugins {
    id("com.android.application") version "8.13.0"
    id("org.jetbrains.kotlin.android") version "2.2.21"
    id("org.jetbrains.kotlin.plugin.compose") version "2.2.21"
}

android {
    namespace = "dev.mlcc.sample"
    compileSdk = 36

    defaultConfig {
        applicationId = "dev.mlcc.sample"
        minSdk = 26
        targetSdk = 36
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
    }
    buildFeatures { compose = true }
    sourceSets["main"].apply {
        kotlin.srcDirs("src/main/kotlin", "src/android/kotlin")
        manifest.srcFile("src/android/AndroidManifest.xml")
        assets.srcDir("src/android/assets") // model/: made by `mlcc compile --target android`
    }
    // Weights hardly compress, and are copied faster uncompressed.
    androidResources { noCompress += listOf("safetensors", "so", "zip") }
    // DJL's desktop libraries, which its JAR has as resources.
    packaging { resources.excludes += "native/lib/**" }
}

dependencies {
    implementation("dev.mlcc:mlcc-android:0.1.0")
    implementation("dev.mlcc:mlcc-djl:0.1.0")
    implementation("ai.djl.android:tokenizer-native:0.33.0") // DJL's library for phones
    implementation(platform("androidx.compose:compose-bom:2025.06.01"))
    implementation("androidx.compose.material3:material3")
    implementation("androidx.activity:activity-compose:1.10.1")
}
