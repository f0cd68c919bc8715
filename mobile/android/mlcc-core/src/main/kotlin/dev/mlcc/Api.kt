// Written by `python -m tools.api_types` from runtime/mlcc/api: change that and run it again.

package dev.mlcc

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.JsonElement

/** low = few tokens: without tiles, or of fewer pixels. */
@Serializable
public enum class Detail {
    /** `auto` */
    @SerialName("auto")
    AUTO,

    /** `low` */
    @SerialName("low")
    LOW,

    /** `high` */
    @SerialName("high")
    HIGH,

    /** `original` */
    @SerialName("original")
    ORIGINAL,
}

/**
 * What the file is; its first bytes decide. Ogg and mp3 need the extra `audio`, those from m4a
 * on the extra `av`.
 */
@Serializable
public enum class Format {
    /** `wav` */
    @SerialName("wav")
    WAV,

    /** `flac` */
    @SerialName("flac")
    FLAC,

    /** `mp3` */
    @SerialName("mp3")
    MP3,

    /** `ogg` */
    @SerialName("ogg")
    OGG,

    /** `m4a` */
    @SerialName("m4a")
    M4A,

    /** `aac` */
    @SerialName("aac")
    AAC,

    /** `webm` */
    @SerialName("webm")
    WEBM,

    /** `caf` */
    @SerialName("caf")
    CAF,

    /** `amr` */
    @SerialName("amr")
    AMR,

    /** `aiff` */
    @SerialName("aiff")
    AIFF,
}

/** Whether a tool must be called. */
@Serializable
public enum class Mode {
    /** `auto` */
    @SerialName("auto")
    AUTO,

    /** `required` */
    @SerialName("required")
    REQUIRED,
}

/** Author; developer is another name of system, function an older one of tool. */
@Serializable
public enum class Role {
    /** `system` */
    @SerialName("system")
    SYSTEM,

    /** `developer` */
    @SerialName("developer")
    DEVELOPER,

    /** `user` */
    @SerialName("user")
    USER,

    /** `assistant` */
    @SerialName("assistant")
    ASSISTANT,

    /** `tool` */
    @SerialName("tool")
    TOOL,

    /** `function` */
    @SerialName("function")
    FUNCTION,
}

/**
 * A text, or parts that are joined: texts, images for a model that sees, and sounds for one
 * that hears. May be null in an assistant's or a tool's message. A model that reads text only
 * leaves images and sounds out of a tool's message, and refuses others.
 */
@Serializable(ContentSerializer::class)
public sealed interface Content {
    /** One text. */
    public data class Text(val value: String) : Content

    /** A text in parts, images and sounds. */
    public data class Parts(val value: List<ContentPart>) : Content
}

internal object ContentSerializer : UnionSerializer<Content>(
    "dev.mlcc.Content",
    variant<Content, Content.Text, String>(Content::Text, Content.Text::value),
    variant<Content, Content.Parts, List<ContentPart>>(Content::Parts, Content.Parts::value),
)

/** Type of the answer. */
@Serializable
public enum class Type {
    /** `text` */
    @SerialName("text")
    TEXT,

    /** `json_object` */
    @SerialName("json_object")
    JSON_OBJECT,

    /** `json_schema` */
    @SerialName("json_schema")
    JSON_SCHEMA,
}

/** The answer ends before the first of these in its text; reasoning and calls may hold them. */
@Serializable(StopSerializer::class)
public sealed interface Stop {
    /** One text. */
    public data class Text(val value: String) : Stop

    /** Several texts. */
    public data class Texts(val value: List<String>) : Stop
}

internal object StopSerializer : UnionSerializer<Stop>(
    "dev.mlcc.Stop",
    variant<Stop, Stop.Text, String>(Stop::Text, Stop.Text::value),
    variant<Stop, Stop.Texts, List<String>>(Stop::Texts, Stop.Texts::value),
)

/** Reasoning effort, if the chat template supports it; none = no reasoning. */
@Serializable
public enum class ReasoningEffort {
    /** `none` */
    @SerialName("none")
    NONE,

    /** `minimal` */
    @SerialName("minimal")
    MINIMAL,

    /** `low` */
    @SerialName("low")
    LOW,

    /** `medium` */
    @SerialName("medium")
    MEDIUM,

    /** `high` */
    @SerialName("high")
    HIGH,

    /** `xhigh` */
    @SerialName("xhigh")
    XHIGH,

    /** `max` */
    @SerialName("max")
    MAX,
}

/** One prompt or several; each gets an answer. */
@Serializable(PromptSerializer::class)
public sealed interface Prompt {
    /** One text. */
    public data class Text(val value: String) : Prompt

    /** Several texts. */
    public data class Texts(val value: List<String>) : Prompt

    /** Ids of tokens. */
    public data class Tokens(val value: List<Int>) : Prompt

    /** Several lists of ids of tokens. */
    public data class TokenLists(val value: List<List<Int>>) : Prompt
}

internal object PromptSerializer : UnionSerializer<Prompt>(
    "dev.mlcc.Prompt",
    variant<Prompt, Prompt.Text, String>(Prompt::Text, Prompt.Text::value),
    variant<Prompt, Prompt.Texts, List<String>>(Prompt::Texts, Prompt.Texts::value),
    variant<Prompt, Prompt.Tokens, List<Int>>(Prompt::Tokens, Prompt.Tokens::value),
    variant<Prompt, Prompt.TokenLists, List<List<Int>>>(Prompt::TokenLists, Prompt.TokenLists::value),
)

/** A part of a message: a text, an image or a sound. */
@Serializable(ContentPartSerializer::class)
public sealed interface ContentPart

internal object ContentPartSerializer : UnionSerializer<ContentPart>(
    "dev.mlcc.ContentPart",
    variant<ContentPart, TextPart, TextPart>({ it }, { it }),
    variant<ContentPart, ImagePart, ImagePart>({ it }, { it }),
    variant<ContentPart, AudioPart, AudioPart>({ it }, { it }),
    variant<ContentPart, RefusalPart, RefusalPart>({ it }, { it }),
)

/** A part of a message. */
@Serializable
public data class TextPart(
    val type: String = "text",
    val text: String,
) : ContentPart

/** An image, and how closely the model looks at it. */
@Serializable
public data class ImageURL(
    /** The image as a data URL: data:image/png;base64,... */
    val url: String,
    /** low = few tokens: without tiles, or of fewer pixels. */
    val detail: Detail? = null,
)

/** A part of a message: an image, for a model that sees. */
@Serializable
public data class ImagePart(
    val type: String = "image_url",
    /** An image. */
    @SerialName("image_url")
    val imageUrl: JsonElement,
) : ContentPart

/** A sound in the bytes of its file. */
@Serializable
public data class InputAudio(
    /** The file as base64. */
    val data: String,
    /**
     * What the file is; its first bytes decide. Ogg and mp3 need the extra `audio`, those from
     * m4a on the extra `av`.
     */
    val format: Format? = null,
)

/** A part of a message: a sound, for a model that hears. */
@Serializable
public data class AudioPart(
    val type: String = "input_audio",
    /** A sound. */
    @SerialName("input_audio")
    val inputAudio: InputAudio,
) : ContentPart

/** A part of an assistant's message: words in which it refused. */
@Serializable
public data class RefusalPart(
    val type: String = "refusal",
    val refusal: String,
) : ContentPart

/** The function of a call. */
@Serializable
public data class CalledFunction(
    /** The tool's name. */
    val name: String,
    /** As JSON's text. */
    val arguments: String? = null,
)

/** A tool call in an assistant's message. */
@Serializable
public data class MessageToolCall(
    /** The called function. */
    val function: CalledFunction,
    /** The id that the tool's message refers to. */
    val id: String? = null,
    val type: String? = null,
    /** Accepted; never affects an answer. */
    val index: JsonElement? = null,
)

/** A function that the model may call. */
@Serializable
public data class ToolFunction(
    /** The tool's name. */
    val name: String,
    /** The tool's purpose, for the model. */
    val description: String? = null,
    /** The schema of its arguments; without, it takes none. */
    val parameters: JsonElement? = null,
    /** Refuse a schema that cannot be enforced in full, instead of enforcing a part of it. */
    val strict: Boolean? = null,
)

/** A tool that the model may call. */
@Serializable
public data class Tool(
    val type: String = "function",
    /** The function. */
    val function: ToolFunction,
)

/** A function of `tools`, by its name. */
@Serializable
public data class NamedFunction(
    val name: String,
)

/** The tool to call. */
@Serializable
public data class NamedTool(
    val type: String = "function",
    /** The function to call. */
    val function: NamedFunction,
)

/** The allowed ones of `tools`. */
@Serializable
public data class AllowedToolsList(
    /** Whether a tool must be called. */
    val mode: Mode,
    /** The allowed tools, from `tools`. */
    val tools: List<NamedTool>,
)

/** A choice among some of `tools`. */
@Serializable
public data class AllowedTools(
    val type: String = "allowed_tools",
    /** The tools that may be called. */
    @SerialName("allowed_tools")
    val allowedTools: AllowedToolsList,
)

/** Whether and how long the model reasons. */
@Serializable
public data class ThinkingSwitch(
    /** Whether the model reasons; adaptive = the model decides. */
    val type: String,
    /** Another name of `thinking_budget`. */
    @SerialName("budget_tokens")
    val budgetTokens: Int? = null,
    /** Accepted; never affects an answer. */
    val display: JsonElement? = null,
)

/** One message of a conversation. Not built yet, so not here: `audio`. */
@Serializable
public data class Message(
    /** Author; developer is another name of system, function an older one of tool. */
    val role: Role,
    /**
     * A text, or parts that are joined: texts, images for a model that sees, and sounds for
     * one that hears. May be null in an assistant's or a tool's message. A model that reads
     * text only leaves images and sounds out of a tool's message, and refuses others.
     */
    val content: Content? = null,
    /** Name of the author, for templates that support names. */
    val name: String? = null,
    /** An assistant's tool calls. */
    @SerialName("tool_calls")
    val toolCalls: List<MessageToolCall>? = null,
    /** The call that a tool's message answers. */
    @SerialName("tool_call_id")
    val toolCallId: String? = null,
    /** The older form of one tool call. */
    @SerialName("function_call")
    val functionCall: CalledFunction? = null,
    /** The assistant's reasoning before this text. */
    @SerialName("reasoning_content")
    val reasoningContent: String? = null,
    /** Another name of `reasoning_content`. */
    val reasoning: String? = null,
    /** Of an assistant's last message: the answer continues this text and begins with it. */
    val prefix: Boolean? = null,
    /** Words in which the assistant refused, read as its text. */
    val refusal: String? = null,
    /** Accepted; never affects an answer. */
    val annotations: JsonElement? = null,
) {
    /** With a plain text as content. */
    public constructor(role: Role, content: String) : this(role, Content.Text(content))
}

/** Options of a stream. Not built yet, so not here: `include_obfuscation`. */
@Serializable
public data class StreamOptions(
    /** End the stream with a chunk of token counts. */
    @SerialName("include_usage")
    val includeUsage: Boolean? = null,
)

/** Predicted content of an answer. */
@Serializable
public data class Prediction(
    /** Always `content`. */
    val type: String = "content",
    /** The text, or texts that are joined. */
    val content: Content,
) {
    /** With a plain text as content. */
    public constructor(type: String, content: String) : this(type, Content.Text(content))
}

/** A JSON Schema, in OpenAI's form. */
@Serializable
public data class JsonSchemaFormat(
    /** The schema of the answer. */
    val schema: JsonElement,
    /** Accepted; never affects an answer. */
    val name: JsonElement? = null,
    /** Accepted; never affects an answer. */
    val description: JsonElement? = null,
    /** Refuse a schema that cannot be enforced in full, instead of enforcing a part of it. */
    val strict: Boolean? = null,
)

/** Format of an answer. */
@Serializable
public data class ResponseFormat(
    /** Type of the answer. */
    val type: Type,
    /** Only with the type `json_schema`. */
    @SerialName("json_schema")
    val jsonSchema: JsonSchemaFormat? = null,
    /** llama.cpp's place of a schema, with either JSON type. */
    val schema: JsonElement? = null,
)

/**
 * Constraints on an answer in vLLM's form: one of these. Not built yet, so not here:
 * `structural_tag`, `whitespace_pattern`, `disable_any_whitespace`,
 * `disable_additional_properties`.
 */
@Serializable
public data class StructuredOutputs(
    /** A JSON Schema. */
    val json: JsonElement? = null,
    /** Any JSON object. */
    @SerialName("json_object")
    val jsonObject: Boolean? = null,
    /** A regular expression for the whole answer. */
    val regex: String? = null,
    /** The answer is one of these. */
    val choice: List<String>? = null,
    /** A grammar, in GBNF or Lark. */
    val grammar: String? = null,
    /** Accepted; never affects an answer. */
    @SerialName("disable_fallback")
    val disableFallback: JsonElement? = null,
)

/**
 * The body of POST /v1/chat/completions. Not built yet, so not here:
 * `guided_whitespace_pattern`, `samplers`, `functions`, `function_call`, `use_beam_search`,
 * `allowed_token_ids`, `truncate_prompt_tokens`, `skip_special_tokens`, `add_special_tokens`,
 * `chat_template`, `documents`, `verbosity`, `echo`, `prompt_logprobs`, `modalities`, `audio`,
 * `web_search_options`, `moderation`.
 */
@Serializable
public data class ChatCompletionRequest(
    /** The conversation so far. */
    val messages: List<Message>,
    /** The model's name; optional if there is only one. */
    val model: String? = null,
    /** Send the answer as it is made, as server-sent events. */
    val stream: Boolean? = null,
    /** Only with `stream`. */
    @SerialName("stream_options")
    val streamOptions: StreamOptions? = null,
    /**
     * Answers to each prompt, which is computed once; each gets a seed derived from `seed`.
     * From 1 to 128.
     */
    val n: Int? = null,
    /** Requests share the prefix cache only with requests of the same salt. */
    @SerialName("cache_salt")
    val cacheSalt: String? = null,
    /**
     * Lower is answered first among the requests of an API key; waiting requests gain priority
     * with time. From -100 to 100.
     */
    val priority: Int? = null,
    /** Time limit of the answer in seconds, within the server's own. */
    val timeout: Double? = null,
    /** Accepted; never affects an answer. */
    val user: JsonElement? = null,
    /** Accepted; never affects an answer. */
    val metadata: JsonElement? = null,
    /** Accepted; never affects an answer. */
    val store: JsonElement? = null,
    /** The answer is JSON. */
    @SerialName("response_format")
    val responseFormat: ResponseFormat? = null,
    /** One constraint on the answer. */
    @SerialName("structured_outputs")
    val structuredOutputs: StructuredOutputs? = null,
    /** vLLM's older name of a JSON Schema. */
    @SerialName("guided_json")
    val guidedJson: JsonElement? = null,
    /** vLLM's older name of a regular expression. */
    @SerialName("guided_regex")
    val guidedRegex: String? = null,
    /** vLLM's older name of a list of answers. */
    @SerialName("guided_choice")
    val guidedChoice: List<String>? = null,
    /** vLLM's older name of a grammar. */
    @SerialName("guided_grammar")
    val guidedGrammar: String? = null,
    /** Accepted; never affects an answer. */
    @SerialName("guided_decoding_backend")
    val guidedDecodingBackend: JsonElement? = null,
    /** llama.cpp's name of a grammar in GBNF. */
    val grammar: String? = null,
    /** llama.cpp's name of a JSON Schema. */
    @SerialName("json_schema")
    val jsonSchema: JsonElement? = null,
    /** Divides the logits; 0 always samples the likeliest token. From 0 to 2. */
    val temperature: Double? = null,
    /**
     * Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From
     * 0 to 1.
     */
    @SerialName("top_p")
    val topP: Double? = null,
    /** Keep this many of the likeliest tokens; 0 and -1 keep all. */
    @SerialName("top_k")
    val topK: Int? = null,
    /** Drop tokens less likely than this share of the likeliest one's. From 0 to 1. */
    @SerialName("min_p")
    val minP: Double? = null,
    /** The same seed and prompt give the same answer. */
    val seed: Long? = null,
    /**
     * The answer ends before the first of these in its text; reasoning and calls may hold
     * them.
     */
    val stop: Stop? = null,
    /** The answer ends behind the string of `stop` instead. */
    @SerialName("include_stop_str_in_output")
    val includeStopStrInOutput: Boolean? = null,
    /** Longest answer in tokens; -1 = as long as the context allows. */
    @SerialName("max_tokens")
    val maxTokens: Int? = null,
    /** Ignore end-of-sequence tokens, for benchmarks. */
    @SerialName("ignore_eos")
    val ignoreEos: Boolean? = null,
    /** Suppress end-of-sequence tokens before this many tokens. */
    @SerialName("min_tokens")
    val minTokens: Int? = null,
    /** Tokens that end the answer, in addition to the model's own. */
    @SerialName("stop_token_ids")
    val stopTokenIds: List<Int>? = null,
    /**
     * Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to
     * 2.
     */
    @SerialName("frequency_penalty")
    val frequencyPenalty: Double? = null,
    /** Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2. */
    @SerialName("presence_penalty")
    val presencePenalty: Double? = null,
    /** Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10. */
    @SerialName("repetition_penalty")
    val repetitionPenalty: Double? = null,
    /** llama.cpp's name of `repetition_penalty`. From 0.01 to 10. */
    @SerialName("repeat_penalty")
    val repeatPenalty: Double? = null,
    /** Window of these three penalties in tokens; -1 = all. */
    @SerialName("repeat_last_n")
    val repeatLastN: Int? = null,
    /** Added to the logits of tokens, by id. */
    @SerialName("logit_bias")
    val logitBias: Map<Int, Double>? = null,
    /** Words that the answer must not contain, as token sequences, with and without a space. */
    @SerialName("bad_words")
    val badWords: List<String>? = null,
    /** Keep logits within this many standard deviations of the largest; 0 and below keep all. */
    @SerialName("top_n_sigma")
    val topNSigma: Double? = null,
    /**
     * Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From
     * 0 to 1.
     */
    @SerialName("typical_p")
    val typicalP: Double? = null,
    /** Drop tokens below this probability. From 0 to 1. */
    @SerialName("epsilon_cutoff")
    val epsilonCutoff: Double? = null,
    /** Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1. */
    @SerialName("eta_cutoff")
    val etaCutoff: Double? = null,
    /**
     * How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
     * From 0 to 1.
     */
    @SerialName("xtc_probability")
    val xtcProbability: Double? = null,
    /** The least probability of a top choice. From 0 to 1. */
    @SerialName("xtc_threshold")
    val xtcThreshold: Double? = null,
    /** Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100. */
    @SerialName("dynatemp_range")
    val dynatempRange: Double? = null,
    /** Exponent of the map from entropy to that range. From 0 to 100. */
    @SerialName("dynatemp_exponent")
    val dynatempExponent: Double? = null,
    /** 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters. */
    val mirostat: Int? = null,
    /** Target surprise of a token, in bits. From 0 to 100. */
    @SerialName("mirostat_tau")
    val mirostatTau: Double? = null,
    /** Learning rate of mirostat. From 0 to 1. */
    @SerialName("mirostat_eta")
    val mirostatEta: Double? = null,
    /**
     * Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0
     * to 100.
     */
    @SerialName("dry_multiplier")
    val dryMultiplier: Double? = null,
    /** Growth of the penalty with the repetition's length. From 1 to 100. */
    @SerialName("dry_base")
    val dryBase: Double? = null,
    /** Longest repetition without a penalty. */
    @SerialName("dry_allowed_length")
    val dryAllowedLength: Int? = null,
    /** Window of the penalty in tokens; -1 = all. */
    @SerialName("dry_penalty_last_n")
    val dryPenaltyLastN: Int? = null,
    /** A repetition does not extend over a token that contains one of these. */
    @SerialName("dry_sequence_breakers")
    val drySequenceBreakers: List<String>? = null,
    /** The newer name of `max_tokens`. */
    @SerialName("max_completion_tokens")
    val maxCompletionTokens: Int? = null,
    /** Report the log-probability of each token of the answer. */
    val logprobs: Boolean? = null,
    /**
     * With `logprobs`: report this many of the likeliest tokens at each position, too. From 0
     * to 20.
     */
    @SerialName("top_logprobs")
    val topLogprobs: Int? = null,
    /** Functions that the model may call. */
    val tools: List<Tool>? = null,
    /** auto = the model decides; none; required = at least one call; or a named function. */
    @SerialName("tool_choice")
    val toolChoice: JsonElement? = null,
    /** false: one call at most in an answer. */
    @SerialName("parallel_tool_calls")
    val parallelToolCalls: Boolean? = null,
    /** Reasoning effort, if the chat template supports it; none = no reasoning. */
    @SerialName("reasoning_effort")
    val reasoningEffort: ReasoningEffort? = null,
    /** Whether the model reasons, if its template supports it. */
    @SerialName("enable_thinking")
    val enableThinking: Boolean? = null,
    /** Most tokens of reasoning; the answer begins after them. */
    @SerialName("thinking_budget")
    val thinkingBudget: Int? = null,
    /** Switch and budget in the form of Anthropic and others. */
    val thinking: ThinkingSwitch? = null,
    /** Variables of the model's chat template. */
    @SerialName("chat_template_kwargs")
    val chatTemplateKwargs: JsonElement? = null,
    /** The answer continues the last message, an assistant's, as with its `prefix`. */
    @SerialName("continue_final_message")
    val continueFinalMessage: Boolean? = null,
    /** false: the prompt ends with the last message, and the model may go on with any role. */
    @SerialName("add_generation_prompt")
    val addGenerationPrompt: Boolean? = null,
    /**
     * Predicted text of the answer, such as the file being edited: faster, with the same
     * answer.
     */
    val prediction: Prediction? = null,
    /** Accepted; never affects an answer. */
    @SerialName("prompt_cache_key")
    val promptCacheKey: JsonElement? = null,
    /** Accepted; never affects an answer. */
    @SerialName("prompt_cache_options")
    val promptCacheOptions: JsonElement? = null,
    /** Accepted; never affects an answer. */
    @SerialName("prompt_cache_retention")
    val promptCacheRetention: JsonElement? = null,
    /** Accepted; never affects an answer. */
    @SerialName("safety_identifier")
    val safetyIdentifier: JsonElement? = null,
    /** Accepted; never affects an answer. */
    @SerialName("service_tier")
    val serviceTier: JsonElement? = null,
) {
    /** Sets one field after another, for Java. */
    public class Builder(messages: List<Message>) {
        private var made = ChatCompletionRequest(messages)

        /** The model's name; optional if there is only one. */
        public fun model(value: String?): Builder =
            apply { made = made.copy(model = value) }

        /** Send the answer as it is made, as server-sent events. */
        public fun stream(value: Boolean?): Builder =
            apply { made = made.copy(stream = value) }

        /** Only with `stream`. */
        public fun streamOptions(value: StreamOptions?): Builder =
            apply { made = made.copy(streamOptions = value) }

        /**
         * Answers to each prompt, which is computed once; each gets a seed derived from
         * `seed`. From 1 to 128.
         */
        public fun n(value: Int?): Builder =
            apply { made = made.copy(n = value) }

        /** Requests share the prefix cache only with requests of the same salt. */
        public fun cacheSalt(value: String?): Builder =
            apply { made = made.copy(cacheSalt = value) }

        /**
         * Lower is answered first among the requests of an API key; waiting requests gain
         * priority with time. From -100 to 100.
         */
        public fun priority(value: Int?): Builder =
            apply { made = made.copy(priority = value) }

        /** Time limit of the answer in seconds, within the server's own. */
        public fun timeout(value: Double?): Builder =
            apply { made = made.copy(timeout = value) }

        /** Accepted; never affects an answer. */
        public fun user(value: JsonElement?): Builder =
            apply { made = made.copy(user = value) }

        /** Accepted; never affects an answer. */
        public fun metadata(value: JsonElement?): Builder =
            apply { made = made.copy(metadata = value) }

        /** Accepted; never affects an answer. */
        public fun store(value: JsonElement?): Builder =
            apply { made = made.copy(store = value) }

        /** The answer is JSON. */
        public fun responseFormat(value: ResponseFormat?): Builder =
            apply { made = made.copy(responseFormat = value) }

        /** One constraint on the answer. */
        public fun structuredOutputs(value: StructuredOutputs?): Builder =
            apply { made = made.copy(structuredOutputs = value) }

        /** vLLM's older name of a JSON Schema. */
        public fun guidedJson(value: JsonElement?): Builder =
            apply { made = made.copy(guidedJson = value) }

        /** vLLM's older name of a regular expression. */
        public fun guidedRegex(value: String?): Builder =
            apply { made = made.copy(guidedRegex = value) }

        /** vLLM's older name of a list of answers. */
        public fun guidedChoice(value: List<String>?): Builder =
            apply { made = made.copy(guidedChoice = value) }

        /** vLLM's older name of a grammar. */
        public fun guidedGrammar(value: String?): Builder =
            apply { made = made.copy(guidedGrammar = value) }

        /** Accepted; never affects an answer. */
        public fun guidedDecodingBackend(value: JsonElement?): Builder =
            apply { made = made.copy(guidedDecodingBackend = value) }

        /** llama.cpp's name of a grammar in GBNF. */
        public fun grammar(value: String?): Builder =
            apply { made = made.copy(grammar = value) }

        /** llama.cpp's name of a JSON Schema. */
        public fun jsonSchema(value: JsonElement?): Builder =
            apply { made = made.copy(jsonSchema = value) }

        /** Divides the logits; 0 always samples the likeliest token. From 0 to 2. */
        public fun temperature(value: Double?): Builder =
            apply { made = made.copy(temperature = value) }

        /**
         * Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all.
         * From 0 to 1.
         */
        public fun topP(value: Double?): Builder =
            apply { made = made.copy(topP = value) }

        /** Keep this many of the likeliest tokens; 0 and -1 keep all. */
        public fun topK(value: Int?): Builder =
            apply { made = made.copy(topK = value) }

        /** Drop tokens less likely than this share of the likeliest one's. From 0 to 1. */
        public fun minP(value: Double?): Builder =
            apply { made = made.copy(minP = value) }

        /** The same seed and prompt give the same answer. */
        public fun seed(value: Long?): Builder =
            apply { made = made.copy(seed = value) }

        /**
         * The answer ends before the first of these in its text; reasoning and calls may hold
         * them.
         */
        public fun stop(value: Stop?): Builder =
            apply { made = made.copy(stop = value) }

        /** The answer ends behind the string of `stop` instead. */
        public fun includeStopStrInOutput(value: Boolean?): Builder =
            apply { made = made.copy(includeStopStrInOutput = value) }

        /** Longest answer in tokens; -1 = as long as the context allows. */
        public fun maxTokens(value: Int?): Builder =
            apply { made = made.copy(maxTokens = value) }

        /** Ignore end-of-sequence tokens, for benchmarks. */
        public fun ignoreEos(value: Boolean?): Builder =
            apply { made = made.copy(ignoreEos = value) }

        /** Suppress end-of-sequence tokens before this many tokens. */
        public fun minTokens(value: Int?): Builder =
            apply { made = made.copy(minTokens = value) }

        /** Tokens that end the answer, in addition to the model's own. */
        public fun stopTokenIds(value: List<Int>?): Builder =
            apply { made = made.copy(stopTokenIds = value) }

        /**
         * Lowers a token's logit for each time it is in the answer; below 0, raises it. From
         * -2 to 2.
         */
        public fun frequencyPenalty(value: Double?): Builder =
            apply { made = made.copy(frequencyPenalty = value) }

        /** Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2. */
        public fun presencePenalty(value: Double?): Builder =
            apply { made = made.copy(presencePenalty = value) }

        /** Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10. */
        public fun repetitionPenalty(value: Double?): Builder =
            apply { made = made.copy(repetitionPenalty = value) }

        /** llama.cpp's name of `repetition_penalty`. From 0.01 to 10. */
        public fun repeatPenalty(value: Double?): Builder =
            apply { made = made.copy(repeatPenalty = value) }

        /** Window of these three penalties in tokens; -1 = all. */
        public fun repeatLastN(value: Int?): Builder =
            apply { made = made.copy(repeatLastN = value) }

        /** Added to the logits of tokens, by id. */
        public fun logitBias(value: Map<Int, Double>?): Builder =
            apply { made = made.copy(logitBias = value) }

        /**
         * Words that the answer must not contain, as token sequences, with and without a
         * space.
         */
        public fun badWords(value: List<String>?): Builder =
            apply { made = made.copy(badWords = value) }

        /**
         * Keep logits within this many standard deviations of the largest; 0 and below keep
         * all.
         */
        public fun topNSigma(value: Double?): Builder =
            apply { made = made.copy(topNSigma = value) }

        /**
         * Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all.
         * From 0 to 1.
         */
        public fun typicalP(value: Double?): Builder =
            apply { made = made.copy(typicalP = value) }

        /** Drop tokens below this probability. From 0 to 1. */
        public fun epsilonCutoff(value: Double?): Builder =
            apply { made = made.copy(epsilonCutoff = value) }

        /**
         * Drop tokens below this probability; the threshold falls with the entropy. From 0 to
         * 1.
         */
        public fun etaCutoff(value: Double?): Builder =
            apply { made = made.copy(etaCutoff = value) }

        /**
         * How often all tokens from `xtc_threshold` on are excluded but the least likely of
         * them. From 0 to 1.
         */
        public fun xtcProbability(value: Double?): Builder =
            apply { made = made.copy(xtcProbability = value) }

        /** The least probability of a top choice. From 0 to 1. */
        public fun xtcThreshold(value: Double?): Builder =
            apply { made = made.copy(xtcThreshold = value) }

        /**
         * Range of the temperature: lower at low entropy, higher at high entropy. From 0 to
         * 100.
         */
        public fun dynatempRange(value: Double?): Builder =
            apply { made = made.copy(dynatempRange = value) }

        /** Exponent of the map from entropy to that range. From 0 to 100. */
        public fun dynatempExponent(value: Double?): Builder =
            apply { made = made.copy(dynatempExponent = value) }

        /** 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters. */
        public fun mirostat(value: Int?): Builder =
            apply { made = made.copy(mirostat = value) }

        /** Target surprise of a token, in bits. From 0 to 100. */
        public fun mirostatTau(value: Double?): Builder =
            apply { made = made.copy(mirostatTau = value) }

        /** Learning rate of mirostat. From 0 to 1. */
        public fun mirostatEta(value: Double?): Builder =
            apply { made = made.copy(mirostatEta = value) }

        /**
         * Above 0, penalizes a token that would extend a repetition, more for a longer one.
         * From 0 to 100.
         */
        public fun dryMultiplier(value: Double?): Builder =
            apply { made = made.copy(dryMultiplier = value) }

        /** Growth of the penalty with the repetition's length. From 1 to 100. */
        public fun dryBase(value: Double?): Builder =
            apply { made = made.copy(dryBase = value) }

        /** Longest repetition without a penalty. */
        public fun dryAllowedLength(value: Int?): Builder =
            apply { made = made.copy(dryAllowedLength = value) }

        /** Window of the penalty in tokens; -1 = all. */
        public fun dryPenaltyLastN(value: Int?): Builder =
            apply { made = made.copy(dryPenaltyLastN = value) }

        /** A repetition does not extend over a token that contains one of these. */
        public fun drySequenceBreakers(value: List<String>?): Builder =
            apply { made = made.copy(drySequenceBreakers = value) }

        /** The newer name of `max_tokens`. */
        public fun maxCompletionTokens(value: Int?): Builder =
            apply { made = made.copy(maxCompletionTokens = value) }

        /** Report the log-probability of each token of the answer. */
        public fun logprobs(value: Boolean?): Builder =
            apply { made = made.copy(logprobs = value) }

        /**
         * With `logprobs`: report this many of the likeliest tokens at each position, too.
         * From 0 to 20.
         */
        public fun topLogprobs(value: Int?): Builder =
            apply { made = made.copy(topLogprobs = value) }

        /** Functions that the model may call. */
        public fun tools(value: List<Tool>?): Builder =
            apply { made = made.copy(tools = value) }

        /** auto = the model decides; none; required = at least one call; or a named function. */
        public fun toolChoice(value: JsonElement?): Builder =
            apply { made = made.copy(toolChoice = value) }

        /** false: one call at most in an answer. */
        public fun parallelToolCalls(value: Boolean?): Builder =
            apply { made = made.copy(parallelToolCalls = value) }

        /** Reasoning effort, if the chat template supports it; none = no reasoning. */
        public fun reasoningEffort(value: ReasoningEffort?): Builder =
            apply { made = made.copy(reasoningEffort = value) }

        /** Whether the model reasons, if its template supports it. */
        public fun enableThinking(value: Boolean?): Builder =
            apply { made = made.copy(enableThinking = value) }

        /** Most tokens of reasoning; the answer begins after them. */
        public fun thinkingBudget(value: Int?): Builder =
            apply { made = made.copy(thinkingBudget = value) }

        /** Switch and budget in the form of Anthropic and others. */
        public fun thinking(value: ThinkingSwitch?): Builder =
            apply { made = made.copy(thinking = value) }

        /** Variables of the model's chat template. */
        public fun chatTemplateKwargs(value: JsonElement?): Builder =
            apply { made = made.copy(chatTemplateKwargs = value) }

        /** The answer continues the last message, an assistant's, as with its `prefix`. */
        public fun continueFinalMessage(value: Boolean?): Builder =
            apply { made = made.copy(continueFinalMessage = value) }

        /** false: the prompt ends with the last message, and the model may go on with any role. */
        public fun addGenerationPrompt(value: Boolean?): Builder =
            apply { made = made.copy(addGenerationPrompt = value) }

        /**
         * Predicted text of the answer, such as the file being edited: faster, with the same
         * answer.
         */
        public fun prediction(value: Prediction?): Builder =
            apply { made = made.copy(prediction = value) }

        /** Accepted; never affects an answer. */
        public fun promptCacheKey(value: JsonElement?): Builder =
            apply { made = made.copy(promptCacheKey = value) }

        /** Accepted; never affects an answer. */
        public fun promptCacheOptions(value: JsonElement?): Builder =
            apply { made = made.copy(promptCacheOptions = value) }

        /** Accepted; never affects an answer. */
        public fun promptCacheRetention(value: JsonElement?): Builder =
            apply { made = made.copy(promptCacheRetention = value) }

        /** Accepted; never affects an answer. */
        public fun safetyIdentifier(value: JsonElement?): Builder =
            apply { made = made.copy(safetyIdentifier = value) }

        /** Accepted; never affects an answer. */
        public fun serviceTier(value: JsonElement?): Builder =
            apply { made = made.copy(serviceTier = value) }

        /** The request. */
        public fun build(): ChatCompletionRequest = made
    }
}

/**
 * The body of POST /v1/completions. Not built yet, so not here: `guided_whitespace_pattern`,
 * `samplers`, `prompt_logprobs`, `use_beam_search`, `allowed_token_ids`,
 * `truncate_prompt_tokens`, `skip_special_tokens`, `add_special_tokens`.
 */
@Serializable
public data class CompletionRequest(
    /** One prompt or several; each gets an answer. */
    val prompt: Prompt,
    /** The model's name; optional if there is only one. */
    val model: String? = null,
    /** Send the answer as it is made, as server-sent events. */
    val stream: Boolean? = null,
    /** Only with `stream`. */
    @SerialName("stream_options")
    val streamOptions: StreamOptions? = null,
    /**
     * Answers to each prompt, which is computed once; each gets a seed derived from `seed`.
     * From 1 to 128.
     */
    val n: Int? = null,
    /** Requests share the prefix cache only with requests of the same salt. */
    @SerialName("cache_salt")
    val cacheSalt: String? = null,
    /**
     * Lower is answered first among the requests of an API key; waiting requests gain priority
     * with time. From -100 to 100.
     */
    val priority: Int? = null,
    /** Time limit of the answer in seconds, within the server's own. */
    val timeout: Double? = null,
    /** Accepted; never affects an answer. */
    val user: JsonElement? = null,
    /** Accepted; never affects an answer. */
    val metadata: JsonElement? = null,
    /** Accepted; never affects an answer. */
    val store: JsonElement? = null,
    /** The answer is JSON. */
    @SerialName("response_format")
    val responseFormat: ResponseFormat? = null,
    /** One constraint on the answer. */
    @SerialName("structured_outputs")
    val structuredOutputs: StructuredOutputs? = null,
    /** vLLM's older name of a JSON Schema. */
    @SerialName("guided_json")
    val guidedJson: JsonElement? = null,
    /** vLLM's older name of a regular expression. */
    @SerialName("guided_regex")
    val guidedRegex: String? = null,
    /** vLLM's older name of a list of answers. */
    @SerialName("guided_choice")
    val guidedChoice: List<String>? = null,
    /** vLLM's older name of a grammar. */
    @SerialName("guided_grammar")
    val guidedGrammar: String? = null,
    /** Accepted; never affects an answer. */
    @SerialName("guided_decoding_backend")
    val guidedDecodingBackend: JsonElement? = null,
    /** llama.cpp's name of a grammar in GBNF. */
    val grammar: String? = null,
    /** llama.cpp's name of a JSON Schema. */
    @SerialName("json_schema")
    val jsonSchema: JsonElement? = null,
    /** Divides the logits; 0 always samples the likeliest token. From 0 to 2. */
    val temperature: Double? = null,
    /**
     * Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From
     * 0 to 1.
     */
    @SerialName("top_p")
    val topP: Double? = null,
    /** Keep this many of the likeliest tokens; 0 and -1 keep all. */
    @SerialName("top_k")
    val topK: Int? = null,
    /** Drop tokens less likely than this share of the likeliest one's. From 0 to 1. */
    @SerialName("min_p")
    val minP: Double? = null,
    /** The same seed and prompt give the same answer. */
    val seed: Long? = null,
    /**
     * The answer ends before the first of these in its text; reasoning and calls may hold
     * them.
     */
    val stop: Stop? = null,
    /** The answer ends behind the string of `stop` instead. */
    @SerialName("include_stop_str_in_output")
    val includeStopStrInOutput: Boolean? = null,
    /** Ignore end-of-sequence tokens, for benchmarks. */
    @SerialName("ignore_eos")
    val ignoreEos: Boolean? = null,
    /** Suppress end-of-sequence tokens before this many tokens. */
    @SerialName("min_tokens")
    val minTokens: Int? = null,
    /** Tokens that end the answer, in addition to the model's own. */
    @SerialName("stop_token_ids")
    val stopTokenIds: List<Int>? = null,
    /**
     * Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to
     * 2.
     */
    @SerialName("frequency_penalty")
    val frequencyPenalty: Double? = null,
    /** Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2. */
    @SerialName("presence_penalty")
    val presencePenalty: Double? = null,
    /** Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10. */
    @SerialName("repetition_penalty")
    val repetitionPenalty: Double? = null,
    /** llama.cpp's name of `repetition_penalty`. From 0.01 to 10. */
    @SerialName("repeat_penalty")
    val repeatPenalty: Double? = null,
    /** Window of these three penalties in tokens; -1 = all. */
    @SerialName("repeat_last_n")
    val repeatLastN: Int? = null,
    /** Added to the logits of tokens, by id. */
    @SerialName("logit_bias")
    val logitBias: Map<Int, Double>? = null,
    /** Words that the answer must not contain, as token sequences, with and without a space. */
    @SerialName("bad_words")
    val badWords: List<String>? = null,
    /** Keep logits within this many standard deviations of the largest; 0 and below keep all. */
    @SerialName("top_n_sigma")
    val topNSigma: Double? = null,
    /**
     * Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From
     * 0 to 1.
     */
    @SerialName("typical_p")
    val typicalP: Double? = null,
    /** Drop tokens below this probability. From 0 to 1. */
    @SerialName("epsilon_cutoff")
    val epsilonCutoff: Double? = null,
    /** Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1. */
    @SerialName("eta_cutoff")
    val etaCutoff: Double? = null,
    /**
     * How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
     * From 0 to 1.
     */
    @SerialName("xtc_probability")
    val xtcProbability: Double? = null,
    /** The least probability of a top choice. From 0 to 1. */
    @SerialName("xtc_threshold")
    val xtcThreshold: Double? = null,
    /** Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100. */
    @SerialName("dynatemp_range")
    val dynatempRange: Double? = null,
    /** Exponent of the map from entropy to that range. From 0 to 100. */
    @SerialName("dynatemp_exponent")
    val dynatempExponent: Double? = null,
    /** 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters. */
    val mirostat: Int? = null,
    /** Target surprise of a token, in bits. From 0 to 100. */
    @SerialName("mirostat_tau")
    val mirostatTau: Double? = null,
    /** Learning rate of mirostat. From 0 to 1. */
    @SerialName("mirostat_eta")
    val mirostatEta: Double? = null,
    /**
     * Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0
     * to 100.
     */
    @SerialName("dry_multiplier")
    val dryMultiplier: Double? = null,
    /** Growth of the penalty with the repetition's length. From 1 to 100. */
    @SerialName("dry_base")
    val dryBase: Double? = null,
    /** Longest repetition without a penalty. */
    @SerialName("dry_allowed_length")
    val dryAllowedLength: Int? = null,
    /** Window of the penalty in tokens; -1 = all. */
    @SerialName("dry_penalty_last_n")
    val dryPenaltyLastN: Int? = null,
    /** A repetition does not extend over a token that contains one of these. */
    @SerialName("dry_sequence_breakers")
    val drySequenceBreakers: List<String>? = null,
    /**
     * Longest answer in tokens; -1 = as long as the context allows, 0 = none: the prompt alone
     * is computed.
     */
    @SerialName("max_tokens")
    val maxTokens: Int? = null,
    /** Send the prompt before the answer, and its `logprobs`. */
    val echo: Boolean? = null,
    /**
     * Generate this many answers and send the `n` likeliest, by mean log-probability; with
     * `stream` it must equal `n`. From 1 to 128.
     */
    @SerialName("best_of")
    val bestOf: Int? = null,
    /** Text after the gap to fill; for models that were trained for it. */
    val suffix: String? = null,
    /**
     * Report the log-probability of each token of the answer, and of this many of the
     * likeliest at its position. From 0 to 20.
     */
    val logprobs: Int? = null,
) {
    /** With a plain text as prompt. */
    public constructor(prompt: String) : this(Prompt.Text(prompt))

    /** Sets one field after another, for Java. */
    public class Builder(prompt: Prompt) {
        private var made = CompletionRequest(prompt)

        /** The model's name; optional if there is only one. */
        public fun model(value: String?): Builder =
            apply { made = made.copy(model = value) }

        /** Send the answer as it is made, as server-sent events. */
        public fun stream(value: Boolean?): Builder =
            apply { made = made.copy(stream = value) }

        /** Only with `stream`. */
        public fun streamOptions(value: StreamOptions?): Builder =
            apply { made = made.copy(streamOptions = value) }

        /**
         * Answers to each prompt, which is computed once; each gets a seed derived from
         * `seed`. From 1 to 128.
         */
        public fun n(value: Int?): Builder =
            apply { made = made.copy(n = value) }

        /** Requests share the prefix cache only with requests of the same salt. */
        public fun cacheSalt(value: String?): Builder =
            apply { made = made.copy(cacheSalt = value) }

        /**
         * Lower is answered first among the requests of an API key; waiting requests gain
         * priority with time. From -100 to 100.
         */
        public fun priority(value: Int?): Builder =
            apply { made = made.copy(priority = value) }

        /** Time limit of the answer in seconds, within the server's own. */
        public fun timeout(value: Double?): Builder =
            apply { made = made.copy(timeout = value) }

        /** Accepted; never affects an answer. */
        public fun user(value: JsonElement?): Builder =
            apply { made = made.copy(user = value) }

        /** Accepted; never affects an answer. */
        public fun metadata(value: JsonElement?): Builder =
            apply { made = made.copy(metadata = value) }

        /** Accepted; never affects an answer. */
        public fun store(value: JsonElement?): Builder =
            apply { made = made.copy(store = value) }

        /** The answer is JSON. */
        public fun responseFormat(value: ResponseFormat?): Builder =
            apply { made = made.copy(responseFormat = value) }

        /** One constraint on the answer. */
        public fun structuredOutputs(value: StructuredOutputs?): Builder =
            apply { made = made.copy(structuredOutputs = value) }

        /** vLLM's older name of a JSON Schema. */
        public fun guidedJson(value: JsonElement?): Builder =
            apply { made = made.copy(guidedJson = value) }

        /** vLLM's older name of a regular expression. */
        public fun guidedRegex(value: String?): Builder =
            apply { made = made.copy(guidedRegex = value) }

        /** vLLM's older name of a list of answers. */
        public fun guidedChoice(value: List<String>?): Builder =
            apply { made = made.copy(guidedChoice = value) }

        /** vLLM's older name of a grammar. */
        public fun guidedGrammar(value: String?): Builder =
            apply { made = made.copy(guidedGrammar = value) }

        /** Accepted; never affects an answer. */
        public fun guidedDecodingBackend(value: JsonElement?): Builder =
            apply { made = made.copy(guidedDecodingBackend = value) }

        /** llama.cpp's name of a grammar in GBNF. */
        public fun grammar(value: String?): Builder =
            apply { made = made.copy(grammar = value) }

        /** llama.cpp's name of a JSON Schema. */
        public fun jsonSchema(value: JsonElement?): Builder =
            apply { made = made.copy(jsonSchema = value) }

        /** Divides the logits; 0 always samples the likeliest token. From 0 to 2. */
        public fun temperature(value: Double?): Builder =
            apply { made = made.copy(temperature = value) }

        /**
         * Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all.
         * From 0 to 1.
         */
        public fun topP(value: Double?): Builder =
            apply { made = made.copy(topP = value) }

        /** Keep this many of the likeliest tokens; 0 and -1 keep all. */
        public fun topK(value: Int?): Builder =
            apply { made = made.copy(topK = value) }

        /** Drop tokens less likely than this share of the likeliest one's. From 0 to 1. */
        public fun minP(value: Double?): Builder =
            apply { made = made.copy(minP = value) }

        /** The same seed and prompt give the same answer. */
        public fun seed(value: Long?): Builder =
            apply { made = made.copy(seed = value) }

        /**
         * The answer ends before the first of these in its text; reasoning and calls may hold
         * them.
         */
        public fun stop(value: Stop?): Builder =
            apply { made = made.copy(stop = value) }

        /** The answer ends behind the string of `stop` instead. */
        public fun includeStopStrInOutput(value: Boolean?): Builder =
            apply { made = made.copy(includeStopStrInOutput = value) }

        /** Ignore end-of-sequence tokens, for benchmarks. */
        public fun ignoreEos(value: Boolean?): Builder =
            apply { made = made.copy(ignoreEos = value) }

        /** Suppress end-of-sequence tokens before this many tokens. */
        public fun minTokens(value: Int?): Builder =
            apply { made = made.copy(minTokens = value) }

        /** Tokens that end the answer, in addition to the model's own. */
        public fun stopTokenIds(value: List<Int>?): Builder =
            apply { made = made.copy(stopTokenIds = value) }

        /**
         * Lowers a token's logit for each time it is in the answer; below 0, raises it. From
         * -2 to 2.
         */
        public fun frequencyPenalty(value: Double?): Builder =
            apply { made = made.copy(frequencyPenalty = value) }

        /** Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2. */
        public fun presencePenalty(value: Double?): Builder =
            apply { made = made.copy(presencePenalty = value) }

        /** Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10. */
        public fun repetitionPenalty(value: Double?): Builder =
            apply { made = made.copy(repetitionPenalty = value) }

        /** llama.cpp's name of `repetition_penalty`. From 0.01 to 10. */
        public fun repeatPenalty(value: Double?): Builder =
            apply { made = made.copy(repeatPenalty = value) }

        /** Window of these three penalties in tokens; -1 = all. */
        public fun repeatLastN(value: Int?): Builder =
            apply { made = made.copy(repeatLastN = value) }

        /** Added to the logits of tokens, by id. */
        public fun logitBias(value: Map<Int, Double>?): Builder =
            apply { made = made.copy(logitBias = value) }

        /**
         * Words that the answer must not contain, as token sequences, with and without a
         * space.
         */
        public fun badWords(value: List<String>?): Builder =
            apply { made = made.copy(badWords = value) }

        /**
         * Keep logits within this many standard deviations of the largest; 0 and below keep
         * all.
         */
        public fun topNSigma(value: Double?): Builder =
            apply { made = made.copy(topNSigma = value) }

        /**
         * Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all.
         * From 0 to 1.
         */
        public fun typicalP(value: Double?): Builder =
            apply { made = made.copy(typicalP = value) }

        /** Drop tokens below this probability. From 0 to 1. */
        public fun epsilonCutoff(value: Double?): Builder =
            apply { made = made.copy(epsilonCutoff = value) }

        /**
         * Drop tokens below this probability; the threshold falls with the entropy. From 0 to
         * 1.
         */
        public fun etaCutoff(value: Double?): Builder =
            apply { made = made.copy(etaCutoff = value) }

        /**
         * How often all tokens from `xtc_threshold` on are excluded but the least likely of
         * them. From 0 to 1.
         */
        public fun xtcProbability(value: Double?): Builder =
            apply { made = made.copy(xtcProbability = value) }

        /** The least probability of a top choice. From 0 to 1. */
        public fun xtcThreshold(value: Double?): Builder =
            apply { made = made.copy(xtcThreshold = value) }

        /**
         * Range of the temperature: lower at low entropy, higher at high entropy. From 0 to
         * 100.
         */
        public fun dynatempRange(value: Double?): Builder =
            apply { made = made.copy(dynatempRange = value) }

        /** Exponent of the map from entropy to that range. From 0 to 100. */
        public fun dynatempExponent(value: Double?): Builder =
            apply { made = made.copy(dynatempExponent = value) }

        /** 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters. */
        public fun mirostat(value: Int?): Builder =
            apply { made = made.copy(mirostat = value) }

        /** Target surprise of a token, in bits. From 0 to 100. */
        public fun mirostatTau(value: Double?): Builder =
            apply { made = made.copy(mirostatTau = value) }

        /** Learning rate of mirostat. From 0 to 1. */
        public fun mirostatEta(value: Double?): Builder =
            apply { made = made.copy(mirostatEta = value) }

        /**
         * Above 0, penalizes a token that would extend a repetition, more for a longer one.
         * From 0 to 100.
         */
        public fun dryMultiplier(value: Double?): Builder =
            apply { made = made.copy(dryMultiplier = value) }

        /** Growth of the penalty with the repetition's length. From 1 to 100. */
        public fun dryBase(value: Double?): Builder =
            apply { made = made.copy(dryBase = value) }

        /** Longest repetition without a penalty. */
        public fun dryAllowedLength(value: Int?): Builder =
            apply { made = made.copy(dryAllowedLength = value) }

        /** Window of the penalty in tokens; -1 = all. */
        public fun dryPenaltyLastN(value: Int?): Builder =
            apply { made = made.copy(dryPenaltyLastN = value) }

        /** A repetition does not extend over a token that contains one of these. */
        public fun drySequenceBreakers(value: List<String>?): Builder =
            apply { made = made.copy(drySequenceBreakers = value) }

        /**
         * Longest answer in tokens; -1 = as long as the context allows, 0 = none: the prompt
         * alone is computed.
         */
        public fun maxTokens(value: Int?): Builder =
            apply { made = made.copy(maxTokens = value) }

        /** Send the prompt before the answer, and its `logprobs`. */
        public fun echo(value: Boolean?): Builder =
            apply { made = made.copy(echo = value) }

        /**
         * Generate this many answers and send the `n` likeliest, by mean log-probability; with
         * `stream` it must equal `n`. From 1 to 128.
         */
        public fun bestOf(value: Int?): Builder =
            apply { made = made.copy(bestOf = value) }

        /** Text after the gap to fill; for models that were trained for it. */
        public fun suffix(value: String?): Builder =
            apply { made = made.copy(suffix = value) }

        /**
         * Report the log-probability of each token of the answer, and of this many of the
         * likeliest at its position. From 0 to 20.
         */
        public fun logprobs(value: Int?): Builder =
            apply { made = made.copy(logprobs = value) }

        /** The request. */
        public fun build(): CompletionRequest = made
    }
}

/**
 * stop = the model ended its answer, or a stop string matched; length = the token limit or the
 * context was reached; tool_calls = it ended with tool calls.
 */
@Serializable
public enum class FinishReason {
    /** `stop` */
    @SerialName("stop")
    STOP,

    /** `length` */
    @SerialName("length")
    LENGTH,

    /** `tool_calls` */
    @SerialName("tool_calls")
    TOOL_CALLS,
}

/** Breakdown of the prompts' tokens. */
@Serializable
public data class PromptTokensDetails(
    /** Tokens that the prefix cache had. */
    @SerialName("cached_tokens")
    val cachedTokens: Long,
    /** Tokens that stand for images, which `prompt_tokens` counts; present if there are any. */
    @SerialName("image_tokens")
    val imageTokens: Long? = null,
    /** The same of sound. */
    @SerialName("audio_tokens")
    val audioTokens: Long? = null,
)

/** Tokens of the reasoning, and draft tokens (`--speculate`, `prediction`); what there was. */
@Serializable
public data class CompletionTokensDetails(
    /** Tokens between the marks of the reasoning. */
    @SerialName("reasoning_tokens")
    val reasoningTokens: Long? = null,
    /** Draft tokens that became a part of the answers. */
    @SerialName("accepted_prediction_tokens")
    val acceptedPredictionTokens: Long? = null,
    /** Rejected draft tokens; they are not in `completion_tokens`. */
    @SerialName("rejected_prediction_tokens")
    val rejectedPredictionTokens: Long? = null,
)

/** Token counts of all answers of a request together. */
@Serializable
public data class Usage(
    @SerialName("prompt_tokens")
    val promptTokens: Long,
    @SerialName("completion_tokens")
    val completionTokens: Long,
    @SerialName("total_tokens")
    val totalTokens: Long,
    @SerialName("prompt_tokens_details")
    val promptTokensDetails: PromptTokensDetails,
    /** Present if there was reasoning, or tokens were drafted. */
    @SerialName("completion_tokens_details")
    val completionTokensDetails: CompletionTokensDetails? = null,
)

/** Name and arguments of a call. */
@Serializable
public data class FunctionCall(
    val name: String,
    /** JSON text of an object. */
    val arguments: String,
)

/** A tool call by the model. */
@Serializable
public data class ToolCall(
    /** The id that the tool's message refers to. */
    val id: String,
    val function: FunctionCall,
)

/** The answer of a chat. */
@Serializable
public data class AssistantMessage(
    /** null beside `tool_calls` if there is no text. */
    val content: String? = null,
    /** The model's reasoning, if it was separated from the answer. */
    @SerialName("reasoning_content")
    val reasoningContent: String? = null,
    /** Tool calls, if there are any. */
    @SerialName("tool_calls")
    val toolCalls: List<ToolCall>? = null,
)

/**
 * A token and its log-probability, from the logits after penalties and biases, before
 * temperature and filters.
 */
@Serializable
public data class ChatToken(
    /** Its text, with U+FFFD for a part of a character. */
    val token: String,
    /** Natural logarithm; -9999 is the minimum. */
    val logprob: Double,
    /** UTF-8 bytes of its text, or of its part of a character; null if they are not known. */
    val bytes: List<Long>? = null,
)

/** A token of an answer. */
@Serializable
public data class ChatTokenLogprob(
    /** The likeliest tokens at its position, likeliest first, without control tokens. */
    @SerialName("top_logprobs")
    val topLogprobs: List<ChatToken>,
    /** Its text, with U+FFFD for a part of a character. */
    val token: String,
    /** Natural logarithm; -9999 is the minimum. */
    val logprob: Double,
    /** UTF-8 bytes of its text, or of its part of a character; null if they are not known. */
    val bytes: List<Long>? = null,
)

/** Log-probabilities of the tokens of the text beside it, without what stop strings cut off. */
@Serializable
public data class ChatLogprobs(
    val content: List<ChatTokenLogprob>,
)

/** One answer of a chat completion. */
@Serializable
public data class ChatChoice(
    val index: Long,
    val message: AssistantMessage,
    /** If the request has `logprobs`. */
    val logprobs: ChatLogprobs? = null,
    @SerialName("finish_reason")
    val finishReason: FinishReason,
)

/** A whole answer of /v1/chat/completions. */
@Serializable
public data class ChatCompletion(
    val id: String,
    /** Seconds since 1970. */
    val created: Long,
    val model: String,
    val choices: List<ChatChoice>,
    val usage: Usage,
    /** Identifies the artifact: it changes only if its files change. */
    @SerialName("system_fingerprint")
    val systemFingerprint: String? = null,
)

/** Parts of a name and of arguments that a chunk adds. */
@Serializable
public data class FunctionDelta(
    val name: String? = null,
    val arguments: String? = null,
)

/** What a chunk adds to a call: first its id and name, then its arguments. */
@Serializable
public data class ToolCallDelta(
    /** Number of the call in the answer. */
    val index: Long,
    val function: FunctionDelta,
    val id: String? = null,
)

/** What a chunk adds to the answer; the first one names the role, the last one is empty. */
@Serializable
public data class ChatDelta(
    val content: String? = null,
    @SerialName("reasoning_content")
    val reasoningContent: String? = null,
    @SerialName("tool_calls")
    val toolCalls: List<ToolCallDelta>? = null,
)

/** A piece of one answer of a chat completion. */
@Serializable
public data class ChatChunkChoice(
    val index: Long,
    val delta: ChatDelta,
    /** If the request has `logprobs`, beside text. */
    val logprobs: ChatLogprobs? = null,
    /** Why the answer ended, in its last chunk. */
    @SerialName("finish_reason")
    val finishReason: FinishReason? = null,
)

/** A server-sent event of /v1/chat/completions. */
@Serializable
public data class ChatCompletionChunk(
    val id: String,
    val created: Long,
    val model: String,
    val choices: List<ChatChunkChoice>,
    /** Identifies the artifact: it changes only if its files change. */
    @SerialName("system_fingerprint")
    val systemFingerprint: String? = null,
    /** With `stream_options.include_usage`: in a last chunk without choices, null before. */
    val usage: Usage? = null,
)

/**
 * Log-probabilities of the tokens of the text beside it, with `echo` those of the prompt
 * before them; what stop strings cut off is left out.
 */
@Serializable
public data class CompletionLogprobs(
    /** Texts of the tokens; a part of a character is written `bytes:\xe2`. */
    val tokens: List<String>,
    /**
     * Natural logarithms, from the logits after penalties and biases, before temperature and
     * filters. -9999 is the minimum; null for a prompt's first token.
     */
    @SerialName("token_logprobs")
    val tokenLogprobs: List<Double?>,
    /** The likeliest tokens at each position by their texts, and the token itself. */
    @SerialName("top_logprobs")
    val topLogprobs: List<Map<String, Double>?>,
    /** Where each token begins: number of code points of text before it. */
    @SerialName("text_offset")
    val textOffset: List<Long>,
)

/** The answer to one prompt; `index` is the prompt's number. */
@Serializable
public data class CompletionChoice(
    val index: Long,
    val text: String,
    /** If the request has `logprobs`. */
    val logprobs: CompletionLogprobs? = null,
    @SerialName("finish_reason")
    val finishReason: FinishReason,
)

/** A whole answer of /v1/completions, one choice per prompt. */
@Serializable
public data class Completion(
    val id: String,
    /** Seconds since 1970. */
    val created: Long,
    val model: String,
    val choices: List<CompletionChoice>,
    val usage: Usage,
    /** Identifies the artifact: it changes only if its files change. */
    @SerialName("system_fingerprint")
    val systemFingerprint: String? = null,
)

/** A piece of the answer to one prompt. */
@Serializable
public data class CompletionChunkChoice(
    val index: Long,
    val text: String,
    /** If the request has `logprobs`. */
    val logprobs: CompletionLogprobs? = null,
    /** Why the answer ended, in its last chunk. */
    @SerialName("finish_reason")
    val finishReason: FinishReason? = null,
)

/** A server-sent event of /v1/completions; those of several prompts are interleaved. */
@Serializable
public data class CompletionChunk(
    val id: String,
    val created: Long,
    val model: String,
    val choices: List<CompletionChunkChoice>,
    /** Identifies the artifact: it changes only if its files change. */
    @SerialName("system_fingerprint")
    val systemFingerprint: String? = null,
    /** With `stream_options.include_usage`: in a last chunk without choices, null before. */
    val usage: Usage? = null,
)

/**
 * loaded = ready; loading = requests wait for it; unloaded = the next request loads it;
 * sleeping = out of memory until /wake_up.
 */
@Serializable
public enum class ModelState {
    /** `loaded` */
    @SerialName("loaded")
    LOADED,

    /** `loading` */
    @SerialName("loading")
    LOADING,

    /** `unloaded` */
    @SerialName("unloaded")
    UNLOADED,

    /** `sleeping` */
    @SerialName("sleeping")
    SLEEPING,
}

/** Bounds in pixels: a model reads nothing more of an image that is larger than any of them. */
@Serializable
public data class ImageSize(
    @SerialName("longest_edge")
    val longestEdge: Long? = null,
    @SerialName("shortest_edge")
    val shortestEdge: Long? = null,
    /** Width times height. */
    @SerialName("max_pixels")
    val maxPixels: Long? = null,
)

/** Permissions that clients of vLLM read, as OpenAI's API listed them: equal for all models. */
@Serializable
public data class ModelPermission(
    val id: String,
    val created: Long,
    @SerialName("allow_create_engine")
    val allowCreateEngine: Boolean,
    @SerialName("allow_sampling")
    val allowSampling: Boolean,
    @SerialName("allow_logprobs")
    val allowLogprobs: Boolean,
    @SerialName("allow_search_indices")
    val allowSearchIndices: Boolean,
    @SerialName("allow_view")
    val allowView: Boolean,
    @SerialName("allow_fine_tuning")
    val allowFineTuning: Boolean,
    val organization: String,
    val group: String? = null,
    @SerialName("is_blocking")
    val isBlocking: Boolean,
)

/** One entry of /v1/models. */
@Serializable
public data class Model(
    val id: String,
    val created: Long,
    /** A model that is not loaded is loaded on demand. */
    val state: ModelState,
    /** Longest prompt and answer together, in tokens. */
    @SerialName("context_length")
    val contextLength: Long,
    /** The same number under vLLM's name. */
    @SerialName("max_model_len")
    val maxModelLen: Long,
    /** Other names of the model. */
    val aliases: List<String>,
    /** Planned memory while it is loaded; null if there is no plan. */
    @SerialName("memory_bytes")
    val memoryBytes: Long? = null,
    /** Requests waiting or being answered. */
    val requests: Long,
    /** The base model of an adapter (LoRA). */
    val parent: String? = null,
    /** The model that computes the answers: itself, or an adapter's base model. */
    val root: String,
    val permission: List<ModelPermission>,
    /** Share of the model's bytes that have been read, 0 to 1; null unless it is being loaded. */
    val progress: Double? = null,
    /** Values of a request without its own: temperature, top_p, ...; empty for an encoder. */
    @SerialName("default_sampling")
    val defaultSampling: Map<String, Double>,
    /** Of a model that sees or hears: text, and image or audio. */
    @SerialName("input_modalities")
    val inputModalities: List<String>? = null,
    /** Of a model that sees: clients may scale larger images down to it. */
    @SerialName("image_size")
    val imageSize: ImageSize? = null,
)

/** The answer of /v1/models. */
@Serializable
public data class ModelList(
    val data: List<Model>,
)

/** Token counts of all texts of a request together. */
@Serializable
public data class EncoderUsage(
    @SerialName("prompt_tokens")
    val promptTokens: Long,
    @SerialName("total_tokens")
    val totalTokens: Long,
)

/** The embedding of one text. */
@Serializable
public data class Embedding(
    val index: Long,
    /** Numbers, or base64 of little-endian float32, by `encoding_format`. */
    val embedding: List<Double>? = null,
)

/** The answer of /v1/embeddings, in the order of the texts. */
@Serializable
public data class EmbeddingList(
    val data: List<Embedding>,
    val model: String,
    val usage: EncoderUsage,
)

/** What is counted of a recording. */
@Serializable
public data class AudioUsage(
    val seconds: Long,
)

/** A part of a transcript between two of the model's timestamps; times are in seconds. */
@Serializable
public data class TranscriptionSegment(
    val id: Long,
    /** The frame, of 10 ms, at which its window begins. */
    val seek: Long,
    val start: Double,
    val end: Double,
    val text: String,
    val tokens: List<Long>,
    /** The mean of its window's tokens. */
    @SerialName("avg_logprob")
    val avgLogprob: Double,
    @SerialName("compression_ratio")
    val compressionRatio: Double,
    /** At which its window was transcribed. */
    val temperature: Double,
)

/** A word of a transcript, with its times in seconds. */
@Serializable
public data class TranscriptionWord(
    val word: String,
    val start: Double,
    val end: Double,
)

/**
 * The answer of /v1/audio/transcriptions and /translations in the formats json and
 * verbose_json.
 */
@Serializable
public data class Transcription(
    val text: String,
    val usage: AudioUsage,
    /** transcribe or translate, as all below in the format verbose_json. */
    val task: String? = null,
    val language: String? = null,
    /** Seconds of the recording. */
    val duration: Double? = null,
    val segments: List<TranscriptionSegment>? = null,
    /** If `timestamp_granularities` asks for them. */
    val words: List<TranscriptionWord>? = null,
)

/** A server-sent event of a transcript. */
@Serializable
public data class TranscriptEvent(
    /** transcript.text.delta, or transcript.text.done at the end. */
    val type: String,
    /** A part of the text, in transcript.text.delta. */
    val delta: String? = null,
    /** All of it, in transcript.text.done. */
    val text: String? = null,
    val usage: AudioUsage? = null,
)

/** The score of one pair of texts. */
@Serializable
public data class Score(
    val index: Long,
    val score: Double,
)

/** The answer of /v1/score. */
@Serializable
public data class ScoreList(
    val id: String,
    val created: Long,
    val model: String,
    val data: List<Score>,
    val usage: EncoderUsage,
)

/** The class of one text. */
@Serializable
public data class Classified(
    val index: Long,
    /** The likeliest class. */
    val label: String,
    /** The probability of each class, in the model's order. */
    val probs: List<Double>,
    @SerialName("num_classes")
    val numClasses: Long,
)

/** The answer of /classify. */
@Serializable
public data class ClassList(
    val id: String,
    val created: Long,
    val model: String,
    val data: List<Classified>,
    val usage: EncoderUsage,
)

/** A document, as it was sent. */
@Serializable
public data class RankedText(
    val text: String,
)

/** Rank of one document. */
@Serializable
public data class Ranked(
    /** Index among the documents of the request. */
    val index: Long,
    @SerialName("relevance_score")
    val relevanceScore: Double,
    /** Unless `return_documents` was false. */
    val document: RankedText? = null,
)

/** The answer of /v1/rerank: the best document first. */
@Serializable
public data class Ranking(
    val id: String,
    val model: String,
    val usage: EncoderUsage,
    val results: List<Ranked>,
)

/** Message, type, field and code of an error. */
@Serializable
public data class ErrorObject(
    /** What happened, why, and what to do next. */
    val message: String,
    /** invalid_request_error, or server_error. */
    val type: String,
    /** The field of the request that is wrong. */
    val param: String? = null,
    /** Stable, for programs: context_length_exceeded, queue_full, device_lost, ... */
    val code: String? = null,
)

/** The body of an error response, and the last event of a stream that failed. */
@Serializable
public data class ErrorBody(
    val error: ErrorObject,
)
