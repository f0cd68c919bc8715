package dev.mlcc.android

import android.app.Activity
import android.app.Application
import android.content.ComponentCallbacks2.TRIM_MEMORY_BACKGROUND
import android.content.ComponentCallbacks2.TRIM_MEMORY_COMPLETE
import android.content.ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL
import android.content.ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW
import dev.mlcc.ClosedException
import org.junit.Assert.assertEquals
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.Robolectric
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment

/** Calls of the engine by the lifecycle, on Robolectric's Android 14. */
@RunWith(RobolectricTestRunner::class)
class EngineLifecycleTest {
    private val application: Application = RuntimeEnvironment.getApplication()
    private val calls = mutableListOf<String>()
    private val lifecycle = EngineLifecycle({ calls += "trim $it" }, { calls += "background $it" })

    private fun recorded(): List<String> = calls.toList().also { calls.clear() }

    @Test
    fun `the last stopped activity is the background, the first started one the foreground`() {
        lifecycle.attach(application)
        val first = Robolectric.buildActivity(Activity::class.java).create().start()
        assertEquals(listOf("background false", "trim NONE"), recorded())
        val second = Robolectric.buildActivity(Activity::class.java).create().start()
        first.stop()
        assertEquals(emptyList<String>(), recorded())
        second.stop()
        assertEquals(listOf("background true"), recorded())
        second.restart().start()
        assertEquals(listOf("background false", "trim NONE"), recorded())
    }

    @Test
    fun `an activity that started before counts`() {
        val early = Robolectric.buildActivity(Activity::class.java).create().start()
        lifecycle.attach(application)
        early.stop()
        assertEquals(listOf("background true"), recorded())
    }

    @Test
    fun `low memory trims, by its level`() {
        lifecycle.attach(application)
        application.onTrimMemory(TRIM_MEMORY_RUNNING_LOW)
        application.onTrimMemory(TRIM_MEMORY_RUNNING_CRITICAL)
        application.onTrimMemory(TRIM_MEMORY_BACKGROUND)
        application.onTrimMemory(TRIM_MEMORY_COMPLETE)
        application.onLowMemory()
        assertEquals(listOf("trim CACHE", "trim REFUSE", "trim CACHE", "trim REFUSE", "trim REFUSE"), recorded())
        lifecycle.detach()
        application.onLowMemory()
        assertEquals(emptyList<String>(), recorded())
    }

    @Test
    fun `a closed engine is left alone`() {
        var count = 0
        val closed = { _: Any -> count++; throw ClosedException("closed") }
        EngineLifecycle({ closed(it) }, { closed(it) }).attach(application)
        application.onLowMemory()
        application.onLowMemory()
        assertEquals(1, count)
    }
}
