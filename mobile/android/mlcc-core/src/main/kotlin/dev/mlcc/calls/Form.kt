package dev.mlcc.calls

import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import java.io.ByteArrayOutputStream
import java.util.UUID

/** A form with a [file], as multipart/form-data (RFC 7578). */
internal class Form(fields: Map<String, String>, file: ByteArray) {
    private val boundary = "mlcc-${UUID.randomUUID()}"

    val headers: String =
        buildJsonObject { put("content-type", "multipart/form-data; boundary=$boundary") }.toString()

    val body: ByteArray = ByteArrayOutputStream(file.size + ROOM).apply {
        for ((name, value) in fields) {
            write("--$boundary$FIELD; name=\"$name\"$BREAK$BREAK$value$BREAK".encodeToByteArray())
        }
        write("--$boundary$FIELD; name=\"file\"; filename=\"recording\"$BREAK$BREAK".encodeToByteArray())
        write(file)
        write("$BREAK--$boundary--$BREAK".encodeToByteArray())
    }.toByteArray()

    private companion object {
        const val BREAK = "\r\n"
        const val FIELD = "${BREAK}Content-Disposition: form-data"
        const val ROOM = 1024
    }
}
