package dev.mlcc.sample

import android.os.Bundle
import androidx.activity.ComponentActivity
import androidx.activity.compose.setContent
import androidx.compose.material3.Text
import androidx.compose.runtime.collectAsState
import androidx.compose.runtime.getValue
import androidx.lifecycle.AndroidViewModel
import androidx.lifecycle.ViewModelProvider
import androidx.lifecycle.viewModelScope
import dev.mlcc.Engine
import dev.mlcc.EngineOptions
import dev.mlcc.MlccException
import dev.mlcc.android.EngineLifecycle
import dev.mlcc.android.MlccAndroid
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.launch

/** The app on a phone, with the model in its assets, folder `model`. */
class MainActivity : ComponentActivity() {
    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val model = ViewModelProvider(this)[Model::class.java]
        setContent {
            val shown by model.state.collectAsState()
            when (val now = shown) {
                is Model.Loading -> Text(now.why ?: "Loading ...")
                is Model.Ready -> ChatScreen(now.chat)
            }
        }
    }
}

/** Survives rotations of the activity. */
class Model(application: android.app.Application) : AndroidViewModel(application) {
    /** The state of the screen. */
    sealed interface State

    /** Loading, or failed, with the reason. */
    class Loading(val why: String? = null) : State

    /** The model is ready. */
    class Ready(val chat: Chat) : State

    val state = MutableStateFlow<State>(Loading())
    private var engine: Engine? = null

    init {
        viewModelScope.launch {
            state.value = try {
                val source = MlccAndroid.asset(application, "model")
                val options = EngineOptions(unloadInBackground = true)
                val loaded = MlccAndroid.load(application, source, options)
                engine = loaded
                EngineLifecycle(loaded).attach(application)
                Ready(Chat(viewModelScope, loaded.chat.completions::stream))
            } catch (refused: MlccException) {
                Loading(refused.message)
            }
        }
    }

    override fun onCleared() {
        engine?.close()
    }
}
