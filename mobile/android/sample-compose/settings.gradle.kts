// The app for Android; the desktop's is built by Maven. Untried: Gradle and Google's Maven were not at hand.
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
