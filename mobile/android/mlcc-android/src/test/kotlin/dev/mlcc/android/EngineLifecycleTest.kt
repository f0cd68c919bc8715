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

/** What an engine is told, on Robolectric's Android 14. */
@RunWith(RobolectricTestRunner::class)
class EngineLifecycleTest {
    private val application: Application = RuntimeEnvironment.getApplication()
    private val told = mutableListOf<String>()
    private val lifecycle = EngineLifecycle({ told += "trim $it" }, { told += "background $it" })

    private fun heard(): List<String> = told.toList().also { told.clear() }

    @Test
    fun `out of sight is the last activity that stops, in sight the first that starts`() {
        lifecycle.attach(application)
        val first = Robolectric.buildActivity(Activity::class.java).create().start()
        assertEquals(listOf("background false", "trim NONE"), heard())
        val second = Robolectric.buildActivity(Activity::class.java).create().start()
        first.stop()
        assertEquals(emptyList<String>(), heard())
        second.stop()
        assertEquals(listOf("background true"), heard())
        second.restart().start()
        assertEquals(listOf("background false", "trim NONE"), heard())
    }

    @Test
    fun `an activity that was there before counts`() {
        val early = Robolectric.buildActivity(Activity::class.java).create().start()
        lifecycle.attach(application)
        early.stop()
        assertEquals(listOf("background true"), heard())
    }

    @Test
    fun `short memory trims, by its level`() {
        lifecycle.attach(application)
        application.onTrimMemory(TRIM_MEMORY_RUNNING_LOW)
        application.onTrimMemory(TRIM_MEMORY_RUNNING_CRITICAL)
        application.onTrimMemory(TRIM_MEMORY_BACKGROUND)
        application.onTrimMemory(TRIM_MEMORY_COMPLETE)
        application.onLowMemory()
        assertEquals(listOf("trim CACHE", "trim REFUSE", "trim CACHE", "trim REFUSE", "trim REFUSE"), heard())
        lifecycle.detach()
        application.onLowMemory()
        assertEquals(emptyList<String>(), heard())
    }

    @Test
    fun `a closed engine is left alone`() {
        var calls = 0
        val closed = { _: Any -> calls++; throw ClosedException("closed") }
        EngineLifecycle({ closed(it) }, { closed(it) }).attach(application)
        application.onLowMemory()
        application.onLowMemory()
        assertEquals(1, calls)
    }
}
