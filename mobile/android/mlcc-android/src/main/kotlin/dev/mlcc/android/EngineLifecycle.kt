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
 * Tells an engine when the app is out of sight and when memory is short, until it is closed. Calls
 * return at once, as is right for the main thread.
 *
 *     EngineLifecycle(engine).attach(application)
 *
 * While the app is seen, low memory makes the engine forget what it keeps of earlier prompts, critical
 * memory makes it refuse new requests, too. Out of sight it forgets, gives the model back if it was
 * loaded with `unloadInBackground`, and refuses when the system says that the app is next to go. Back
 * in sight all is as before.
 */
public class EngineLifecycle internal constructor(
    private val trim: (TrimLevel) -> Unit,
    private val background: (Boolean) -> Unit,
) : Application.ActivityLifecycleCallbacks, ComponentCallbacks2 {
    /** For [engine]. */
    public constructor(engine: Engine) : this(engine::trim, engine::background)

    private var application: Application? = null
    private val seen = HashSet<Activity>()

    /** Begin to listen, in the main thread; activities may be in sight already. */
    public fun attach(application: Application) {
        this.application = application
        application.registerActivityLifecycleCallbacks(this)
        application.registerComponentCallbacks(this)
    }

    /** Listen no more. */
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
        // One that is turned round stops before it starts again, and is not out of sight.
        if (seen.isEmpty() && !activity.isChangingConfigurations) tell { background(true) }
    }

    /** Called by Android; nothing to do. */
    override fun onActivityCreated(activity: Activity, state: Bundle?): Unit = Unit

    /** Called by Android; nothing to do. */
    override fun onActivityResumed(activity: Activity): Unit = Unit

    /** Called by Android; nothing to do. */
    override fun onActivityPaused(activity: Activity): Unit = Unit

    /** Called by Android; nothing to do. */
    override fun onActivitySaveInstanceState(activity: Activity, state: Bundle): Unit = Unit

    /** Called by Android; nothing to do. */
    override fun onActivityDestroyed(activity: Activity): Unit = Unit

    /** Called by Android; nothing to do. */
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
