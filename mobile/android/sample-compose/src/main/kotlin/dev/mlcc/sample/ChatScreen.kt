package dev.mlcc.sample

import androidx.compose.foundation.background
import androidx.compose.foundation.layout.Arrangement
import androidx.compose.foundation.layout.Box
import androidx.compose.foundation.layout.Column
import androidx.compose.foundation.layout.Row
import androidx.compose.foundation.layout.fillMaxSize
import androidx.compose.foundation.layout.fillMaxWidth
import androidx.compose.foundation.layout.padding
import androidx.compose.foundation.layout.widthIn
import androidx.compose.foundation.lazy.LazyColumn
import androidx.compose.foundation.lazy.items
import androidx.compose.foundation.lazy.rememberLazyListState
import androidx.compose.foundation.shape.RoundedCornerShape
import androidx.compose.material3.Button
import androidx.compose.material3.MaterialTheme
import androidx.compose.material3.OutlinedTextField
import androidx.compose.material3.Surface
import androidx.compose.material3.Text
import androidx.compose.runtime.Composable
import androidx.compose.runtime.LaunchedEffect
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.remember
import androidx.compose.runtime.setValue
import androidx.compose.ui.Alignment
import androidx.compose.ui.Modifier
import androidx.compose.ui.draw.clip
import androidx.compose.ui.unit.dp
import dev.mlcc.Role

/** The whole app: the conversation and the input field. The same on phone and desktop. */
@Composable
fun ChatScreen(chat: Chat) {
    MaterialTheme {
        Surface(Modifier.fillMaxSize()) {
            Column(Modifier.padding(12.dp), verticalArrangement = Arrangement.spacedBy(8.dp)) {
                Lines(chat.lines, Modifier.weight(1f))
                chat.error?.let { Text(it, color = MaterialTheme.colorScheme.error) }
                Entry(chat)
            }
        }
    }
}

@Composable
private fun Lines(lines: List<Line>, modifier: Modifier) {
    val place = rememberLazyListState()
    LaunchedEffect(lines.size, lines.lastOrNull()?.text) {
        if (lines.isNotEmpty()) place.scrollToItem(lines.lastIndex)
    }
    LazyColumn(modifier.fillMaxWidth(), place, verticalArrangement = Arrangement.spacedBy(8.dp)) {
        items(lines) { Bubble(it) }
    }
}

@Composable
private fun Bubble(line: Line) {
    val own = line.role == Role.USER
    val colors = MaterialTheme.colorScheme
    Box(Modifier.fillMaxWidth(), if (own) Alignment.CenterEnd else Alignment.CenterStart) {
        Text(
            line.text.ifEmpty { "..." },
            Modifier.widthIn(max = 320.dp)
                .clip(RoundedCornerShape(12.dp))
                .background(if (own) colors.primaryContainer else colors.surfaceVariant)
                .padding(10.dp),
        )
    }
}

@Composable
private fun Entry(chat: Chat) {
    var text by remember { mutableStateOf("") }
    Row(verticalAlignment = Alignment.CenterVertically, horizontalArrangement = Arrangement.spacedBy(8.dp)) {
        OutlinedTextField(text, { text = it }, Modifier.weight(1f), placeholder = { Text("Ask something") })
        if (chat.isAnswering) {
            Button(chat::stop) { Text("Stop") }
        } else {
            Button({ chat.ask(text).also { text = "" } }, enabled = text.isNotBlank()) { Text("Send") }
        }
    }
}
