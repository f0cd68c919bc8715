package dev.mlcc.android

import android.app.Activity
import android.app.Application
import android.content.ComponentCallbacks2
import android.content.res.Configuration
import android.os.Bundle
import dev.mlcc.ClosedException
import dev.mlcc.Engine
import dev.mlcc.TrimLevel

/**
 * Notifies an engine when the app goes to the background and when memory is low, until it is closed.
 * Calls return at once, so they suit the main thread.
 *
 *     EngineLifecycle(engine).attach(application)
 *
 * In the foreground, low memory empties the engine's prefix cache, and critical memory also makes it
 * refuse new requests. In the background, the prefix cache is emptied, the model is unloaded if it was
 * loaded with `unloadInBackground`, and requests are refused when the system is about to end the app.
 * In the foreground again, all is as before.
 */
public class EngineLifecycle internal constructor(
    private val trim: (TrimLevel) -> Unit,
    private val background: (Boolean) -> Unit,
) : Application.ActivityLifecycleCallbacks, ComponentCallbacks2 {
    /** For [engine]. */
    public constructor(engine: Engine) : this(engine::trim, engine::background)

    private var application: Application? = null
    private val seen = HashSet<Activity>()

    /** Start listening, in the main thread; activities may be visible already. */
    public fun attach(application: Application) {
        this.application = application
        application.registerActivityLifecycleCallbacks(this)
        application.registerComponentCallbacks(this)
    }

    /** Stop listening. */
    public fun detach() {
        application?.unregisterActivityLifecycleCallbacks(this)
        application?.unregisterComponentCallbacks(this)
        application = null
    }

    /** Called by Android. */
    override fun onTrimMemory(level: Int): Unit = tell { trim(trimOf(level)) }

    /** Called by Android. */
    @Deprecated("as in Android")
    override fun onLowMemory(): Unit = tell { trim(TrimLevel.REFUSE) }

    /** Called by Android. */
    override fun onActivityStarted(activity: Activity) {
        val first = seen.isEmpty()
        seen += activity
        if (first) tell {
            background(false)
            trim(TrimLevel.NONE)
        }
    }

    /** Called by Android. */
    override fun onActivityStopped(activity: Activity) {
        seen -= activity
        // A rotated activity stops before it starts again; the app stays in the foreground.
        if (seen.isEmpty() && !activity.isChangingConfigurations) tell { background(true) }
    }

    /** Called by Android; does nothing. */
    override fun onActivityCreated(activity: Activity, state: Bundle?): Unit = Unit

    /** Called by Android; does nothing. */
    override fun onActivityResumed(activity: Activity): Unit = Unit

    /** Called by Android; does nothing. */
    override fun onActivityPaused(activity: Activity): Unit = Unit

    /** Called by Android; does nothing. */
    override fun onActivitySaveInstanceState(activity: Activity, state: Bundle): Unit = Unit

    /** Called by Android; does nothing. */
    override fun onActivityDestroyed(activity: Activity): Unit = Unit

    /** Called by Android; does nothing. */
    override fun onConfigurationChanged(configuration: Configuration): Unit = Unit

    private fun tell(what: () -> Unit) {
        try {
            what()
        } catch (_: ClosedException) {
            detach()
        }
    }

    private fun trimOf(level: Int): TrimLevel = when {
        level >= ComponentCallbacks2.TRIM_MEMORY_COMPLETE -> TrimLevel.REFUSE
        level == ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL -> TrimLevel.REFUSE
        else -> TrimLevel.CACHE
    }
}
