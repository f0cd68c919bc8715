// The app for Android; Maven builds the desktop app. Untried: Gradle and Google's Maven were not available.
pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositories {
        maven(uri("../../../build/mobile/repository")) // python mobile/android/package.py aar
        google()
        mavenCentral()
    }
}

rootProject.name = "mlcc-sample"
