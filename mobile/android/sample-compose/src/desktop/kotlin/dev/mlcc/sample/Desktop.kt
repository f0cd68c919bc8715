package dev.mlcc.sample

import androidx.compose.material3.Text
import androidx.compose.runtime.LaunchedEffect
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.remember
import androidx.compose.runtime.rememberCoroutineScope
import androidx.compose.runtime.setValue
import androidx.compose.ui.window.singleWindowApplication
import dev.mlcc.Engine
import dev.mlcc.Mlcc
import dev.mlcc.MlccException
import dev.mlcc.ModelSource
import java.nio.file.Paths
import kotlin.system.exitProcess

/** The app in a window, with the model in a folder. */
fun main(arguments: Array<String>) {
    if (arguments.size != 1) {
        System.err.println("arguments: MODEL    a folder that `mlcc compile` made")
        exitProcess(2)
    }
    singleWindowApplication(title = "mlcc") {
        var engine by remember { mutableStateOf<Engine?>(null) }
        var error by remember { mutableStateOf<String?>(null) }
        LaunchedEffect(Unit) {
            try {
                engine = Mlcc.load(ModelSource.Folder(Paths.get(arguments[0])))
            } catch (refused: MlccException) {
                error = refused.message
            }
        }
        val scope = rememberCoroutineScope()
        val loaded = engine
        if (loaded == null) {
            Text(error ?: "Loading ...")
        } else {
            ChatScreen(remember(loaded) { Chat(scope, loaded.chat.completions::stream) })
        }
    }
}
