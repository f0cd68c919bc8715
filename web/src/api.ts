// Written by `python -m tools.api_types` from runtime/mlcc/api: change that and run it again.

/**
 * Requests and answers of the API: bodies of `fetch('/v1/...')`, in a tab or elsewhere.
 *
 * Not OpenAI's whole API: a field that is not built yet accepts only values without an effect.
 */

/** A part of a message. */
export interface TextPart {
  type: 'text';
  text: string;
}

/** An image, and how closely the model looks at it. */
export interface ImageURL {
  /** The image as a data URL: data:image/png;base64,... */
  url: string;
  /** low = few tokens: without tiles, or of fewer pixels. */
  detail?: 'auto' | 'low' | 'high' | 'original' | null;
}

/** A part of a message: an image, for a model that sees. */
export interface ImagePart {
  type: 'image_url';
  /** An image. */
  image_url: string | ImageURL;
}

/** A sound in the bytes of its file. */
export interface InputAudio {
  /** The file as base64. */
  data: string;
  /**
   * What the file is; its first bytes decide. Ogg and mp3 need the extra `audio`, those from
   * m4a on the extra `av`.
   */
  format?: 'wav' | 'flac' | 'mp3' | 'ogg' | 'm4a' | 'aac' | 'webm' | 'caf' | 'amr' | 'aiff' | null;
}

/** A part of a message: a sound, for a model that hears. */
export interface AudioPart {
  type: 'input_audio';
  /** A sound. */
  input_audio: InputAudio;
}

/** A part of an assistant's message: words in which it refused. */
export interface RefusalPart {
  type: 'refusal';
  refusal: string;
}

/** The function of a call. */
export interface CalledFunction {
  /** The tool's name. */
  name: string;
  /** As JSON's text. */
  arguments?: string | null;
}

/** A tool call in an assistant's message. */
export interface MessageToolCall {
  /** The id that the tool's message refers to. */
  id?: string | null;
  type?: 'function' | null;
  /** The called function. */
  function: CalledFunction;
  /** Accepted; never affects an answer. */
  index?: unknown;
}

/** A function that the model may call. */
export interface ToolFunction {
  /** The tool's name. */
  name: string;
  /** The tool's purpose, for the model. */
  description?: string | null;
  /** The schema of its arguments; without, it takes none. */
  parameters?: unknown;
  /** Refuse a schema that cannot be enforced in full, instead of enforcing a part of it. */
  strict?: boolean | null;
}

/** A tool that the model may call. */
export interface Tool {
  type: 'function';
  /** The function. */
  function: ToolFunction;
}

/** A function of `tools`, by its name. */
export interface NamedFunction {
  name: string;
}

/** The tool to call. */
export interface NamedTool {
  type: 'function';
  /** The function to call. */
  function: NamedFunction;
}

/** The allowed ones of `tools`. */
export interface AllowedToolsList {
  /** Whether a tool must be called. */
  mode: 'auto' | 'required';
  /** The allowed tools, from `tools`. */
  tools: readonly NamedTool[];
}

/** A choice among some of `tools`. */
export interface AllowedTools {
  type: 'allowed_tools';
  /** The tools that may be called. */
  allowed_tools: AllowedToolsList;
}

/** Whether and how long the model reasons. */
export interface ThinkingSwitch {
  /** Whether the model reasons; adaptive = the model decides. */
  type: string;
  /** Another name of `thinking_budget`. */
  budget_tokens?: number | null;
  /** Accepted; never affects an answer. */
  display?: unknown;
}

/** One message of a conversation. */
export interface Message {
  /** Author; developer is another name of system, function an older one of tool. */
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool' | 'function';
  /**
   * A text, or parts that are joined: texts, images for a model that sees, and sounds for one
   * that hears. May be null in an assistant's or a tool's message. A model that reads text
   * only leaves images and sounds out of a tool's message, and refuses others.
   */
  content?: string | readonly (TextPart | ImagePart | AudioPart | RefusalPart)[] | null;
  /** Name of the author, for templates that support names. */
  name?: string | null;
  /** An assistant's tool calls. */
  tool_calls?: readonly MessageToolCall[] | null;
  /** The call that a tool's message answers. */
  tool_call_id?: string | null;
  /** The older form of one tool call. */
  function_call?: CalledFunction | null;
  /** The assistant's reasoning before this text. */
  reasoning_content?: string | null;
  /** Another name of `reasoning_content`. */
  reasoning?: string | null;
  /** Of an assistant's last message: the answer continues this text and begins with it. */
  prefix?: boolean | null;
  /** Not built yet: accepted only with a value that has no effect. */
  audio?: null;
  /** Words in which the assistant refused, read as its text. */
  refusal?: string | null;
  /** Accepted; never affects an answer. */
  annotations?: unknown;
}

/** Options of a stream. */
export interface StreamOptions {
  /** End the stream with a chunk of token counts. */
  include_usage?: boolean | null;
  /** Not built yet: accepted only with a value that has no effect. */
  include_obfuscation?: false | null;
}

/** Predicted content of an answer. */
export interface Prediction {
  /** Always `content`. */
  type: 'content';
  /** The text, or texts that are joined. */
  content: string | readonly TextPart[];
}

/** A JSON Schema, in OpenAI's form. */
export interface JsonSchemaFormat {
  /** The schema of the answer. */
  schema: unknown;
  /** Accepted; never affects an answer. */
  name?: unknown;
  /** Accepted; never affects an answer. */
  description?: unknown;
  /** Refuse a schema that cannot be enforced in full, instead of enforcing a part of it. */
  strict?: boolean | null;
}

/** Format of an answer. */
export interface ResponseFormat {
  /** Type of the answer. */
  type: 'text' | 'json_object' | 'json_schema';
  /** Only with the type `json_schema`. */
  json_schema?: JsonSchemaFormat | null;
  /** llama.cpp's place of a schema, with either JSON type. */
  schema?: unknown;
}

/** Constraints on an answer in vLLM's form: one of these. */
export interface StructuredOutputs {
  /** A JSON Schema. */
  json?: unknown;
  /** Any JSON object. */
  json_object?: boolean | null;
  /** A regular expression for the whole answer. */
  regex?: string | null;
  /** The answer is one of these. */
  choice?: readonly string[] | null;
  /** A grammar, in GBNF or Lark. */
  grammar?: string | null;
  /** Not built yet: accepted only with a value that has no effect. */
  structural_tag?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  whitespace_pattern?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  disable_any_whitespace?: false | null;
  /** Not built yet: accepted only with a value that has no effect. */
  disable_additional_properties?: false | null;
  /** Accepted; never affects an answer. */
  disable_fallback?: unknown;
}

/** The body of POST /v1/chat/completions. */
export interface ChatCompletionRequest {
  /** The conversation so far. */
  messages: readonly Message[];
  /** The model's name; optional if there is only one. */
  model?: string | null;
  /** Send the answer as it is made, as server-sent events. */
  stream?: boolean | null;
  /** Only with `stream`. */
  stream_options?: StreamOptions | null;
  /**
   * Answers to each prompt, which is computed once; each gets a seed derived from `seed`. From
   * 1 to 128.
   */
  n?: number | null;
  /** Requests share the prefix cache only with requests of the same salt. */
  cache_salt?: string | null;
  /**
   * Lower is answered first among the requests of an API key; waiting requests gain priority
   * with time. From -100 to 100.
   */
  priority?: number | null;
  /** Time limit of the answer in seconds, within the server's own. */
  timeout?: number | null;
  /** Accepted; never affects an answer. */
  user?: unknown;
  /** Accepted; never affects an answer. */
  metadata?: unknown;
  /** Accepted; never affects an answer. */
  store?: unknown;
  /** The answer is JSON. */
  response_format?: ResponseFormat | null;
  /** One constraint on the answer. */
  structured_outputs?: StructuredOutputs | null;
  /** vLLM's older name of a JSON Schema. */
  guided_json?: unknown;
  /** vLLM's older name of a regular expression. */
  guided_regex?: string | null;
  /** vLLM's older name of a list of answers. */
  guided_choice?: readonly string[] | null;
  /** vLLM's older name of a grammar. */
  guided_grammar?: string | null;
  /** Not built yet: accepted only with a value that has no effect. */
  guided_whitespace_pattern?: null;
  /** Accepted; never affects an answer. */
  guided_decoding_backend?: unknown;
  /** llama.cpp's name of a grammar in GBNF. */
  grammar?: string | null;
  /** llama.cpp's name of a JSON Schema. */
  json_schema?: unknown;
  /** Divides the logits; 0 always samples the likeliest token. From 0 to 2. */
  temperature?: number | null;
  /**
   * Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From 0
   * to 1.
   */
  top_p?: number | null;
  /** Keep this many of the likeliest tokens; 0 and -1 keep all. */
  top_k?: number | null;
  /** Drop tokens less likely than this share of the likeliest one's. From 0 to 1. */
  min_p?: number | null;
  /** The same seed and prompt give the same answer. */
  seed?: number | null;
  /** The answer ends before the first of these in its text; reasoning and calls may hold them. */
  stop?: string | readonly string[] | null;
  /** The answer ends behind the string of `stop` instead. */
  include_stop_str_in_output?: boolean | null;
  /** Longest answer in tokens; -1 = as long as the context allows. */
  max_tokens?: number | null;
  /** Ignore end-of-sequence tokens, for benchmarks. */
  ignore_eos?: boolean | null;
  /** Suppress end-of-sequence tokens before this many tokens. */
  min_tokens?: number | null;
  /** Tokens that end the answer, in addition to the model's own. */
  stop_token_ids?: readonly number[] | null;
  /**
   * Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to
   * 2.
   */
  frequency_penalty?: number | null;
  /** Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2. */
  presence_penalty?: number | null;
  /** Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10. */
  repetition_penalty?: number | null;
  /** llama.cpp's name of `repetition_penalty`. From 0.01 to 10. */
  repeat_penalty?: number | null;
  /** Window of these three penalties in tokens; -1 = all. */
  repeat_last_n?: number | null;
  /** Added to the logits of tokens, by id. */
  logit_bias?: Readonly<Record<number, number>> | null;
  /** Words that the answer must not contain, as token sequences, with and without a space. */
  bad_words?: readonly string[] | null;
  /** Keep logits within this many standard deviations of the largest; 0 and below keep all. */
  top_n_sigma?: number | null;
  /**
   * Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From 0
   * to 1.
   */
  typical_p?: number | null;
  /** Drop tokens below this probability. From 0 to 1. */
  epsilon_cutoff?: number | null;
  /** Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1. */
  eta_cutoff?: number | null;
  /**
   * How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
   * From 0 to 1.
   */
  xtc_probability?: number | null;
  /** The least probability of a top choice. From 0 to 1. */
  xtc_threshold?: number | null;
  /** Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100. */
  dynatemp_range?: number | null;
  /** Exponent of the map from entropy to that range. From 0 to 100. */
  dynatemp_exponent?: number | null;
  /** 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters. */
  mirostat?: number | null;
  /** Target surprise of a token, in bits. From 0 to 100. */
  mirostat_tau?: number | null;
  /** Learning rate of mirostat. From 0 to 1. */
  mirostat_eta?: number | null;
  /**
   * Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0
   * to 100.
   */
  dry_multiplier?: number | null;
  /** Growth of the penalty with the repetition's length. From 1 to 100. */
  dry_base?: number | null;
  /** Longest repetition without a penalty. */
  dry_allowed_length?: number | null;
  /** Window of the penalty in tokens; -1 = all. */
  dry_penalty_last_n?: number | null;
  /** A repetition does not extend over a token that contains one of these. */
  dry_sequence_breakers?: readonly string[] | null;
  /** Not built yet: accepted only with a value that has no effect. */
  samplers?: readonly ['penalties', 'dry', 'top_n_sigma', 'top_k', 'typ_p', 'top_p', 'min_p', 'xtc', 'temperature'] | null;
  /** The newer name of `max_tokens`. */
  max_completion_tokens?: number | null;
  /** Report the log-probability of each token of the answer. */
  logprobs?: boolean | null;
  /**
   * With `logprobs`: report this many of the likeliest tokens at each position, too. From 0 to
   * 20.
   */
  top_logprobs?: number | null;
  /** Functions that the model may call. */
  tools?: readonly Tool[] | null;
  /** auto = the model decides; none; required = at least one call; or a named function. */
  tool_choice?: 'auto' | 'none' | 'required' | NamedTool | AllowedTools | null;
  /** false: one call at most in an answer. */
  parallel_tool_calls?: boolean | null;
  /** Not built yet: accepted only with a value that has no effect. */
  functions?: readonly [] | null;
  /** Not built yet: accepted only with a value that has no effect. */
  function_call?: 'none' | 'auto' | null;
  /** Reasoning effort, if the chat template supports it; none = no reasoning. */
  reasoning_effort?: 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max' | null;
  /** Whether the model reasons, if its template supports it. */
  enable_thinking?: boolean | null;
  /** Most tokens of reasoning; the answer begins after them. */
  thinking_budget?: number | null;
  /** Switch and budget in the form of Anthropic and others. */
  thinking?: ThinkingSwitch | null;
  /** Variables of the model's chat template. */
  chat_template_kwargs?: unknown;
  /** The answer continues the last message, an assistant's, as with its `prefix`. */
  continue_final_message?: boolean | null;
  /** false: the prompt ends with the last message, and the model may go on with any role. */
  add_generation_prompt?: boolean | null;
  /** Not built yet: accepted only with a value that has no effect. */
  use_beam_search?: false | null;
  /** Not built yet: accepted only with a value that has no effect. */
  allowed_token_ids?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  truncate_prompt_tokens?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  skip_special_tokens?: true | null;
  /** Not built yet: accepted only with a value that has no effect. */
  add_special_tokens?: false | null;
  /** Not built yet: accepted only with a value that has no effect. */
  chat_template?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  documents?: readonly [] | null;
  /** Not built yet: accepted only with a value that has no effect. */
  verbosity?: 'medium' | null;
  /** Not built yet: accepted only with a value that has no effect. */
  echo?: false | null;
  /** Not built yet: accepted only with a value that has no effect. */
  prompt_logprobs?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  modalities?: readonly ['text'] | null;
  /** Not built yet: accepted only with a value that has no effect. */
  audio?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  web_search_options?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  moderation?: null;
  /** Predicted text of the answer, such as the file being edited: faster, with the same answer. */
  prediction?: Prediction | null;
  /** Accepted; never affects an answer. */
  prompt_cache_key?: unknown;
  /** Accepted; never affects an answer. */
  prompt_cache_options?: unknown;
  /** Accepted; never affects an answer. */
  prompt_cache_retention?: unknown;
  /** Accepted; never affects an answer. */
  safety_identifier?: unknown;
  /** Accepted; never affects an answer. */
  service_tier?: unknown;
}

export interface ChatCompletionRequestStreaming extends ChatCompletionRequest {
  stream: true;
}

export interface ChatCompletionRequestNonStreaming extends ChatCompletionRequest {
  stream?: false | null;
}

/** The body of POST /v1/completions. */
export interface CompletionRequest {
  /** One prompt or several; each gets an answer. */
  prompt: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** The model's name; optional if there is only one. */
  model?: string | null;
  /** Send the answer as it is made, as server-sent events. */
  stream?: boolean | null;
  /** Only with `stream`. */
  stream_options?: StreamOptions | null;
  /**
   * Answers to each prompt, which is computed once; each gets a seed derived from `seed`. From
   * 1 to 128.
   */
  n?: number | null;
  /** Requests share the prefix cache only with requests of the same salt. */
  cache_salt?: string | null;
  /**
   * Lower is answered first among the requests of an API key; waiting requests gain priority
   * with time. From -100 to 100.
   */
  priority?: number | null;
  /** Time limit of the answer in seconds, within the server's own. */
  timeout?: number | null;
  /** Accepted; never affects an answer. */
  user?: unknown;
  /** Accepted; never affects an answer. */
  metadata?: unknown;
  /** Accepted; never affects an answer. */
  store?: unknown;
  /** The answer is JSON. */
  response_format?: ResponseFormat | null;
  /** One constraint on the answer. */
  structured_outputs?: StructuredOutputs | null;
  /** vLLM's older name of a JSON Schema. */
  guided_json?: unknown;
  /** vLLM's older name of a regular expression. */
  guided_regex?: string | null;
  /** vLLM's older name of a list of answers. */
  guided_choice?: readonly string[] | null;
  /** vLLM's older name of a grammar. */
  guided_grammar?: string | null;
  /** Not built yet: accepted only with a value that has no effect. */
  guided_whitespace_pattern?: null;
  /** Accepted; never affects an answer. */
  guided_decoding_backend?: unknown;
  /** llama.cpp's name of a grammar in GBNF. */
  grammar?: string | null;
  /** llama.cpp's name of a JSON Schema. */
  json_schema?: unknown;
  /** Divides the logits; 0 always samples the likeliest token. From 0 to 2. */
  temperature?: number | null;
  /**
   * Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From 0
   * to 1.
   */
  top_p?: number | null;
  /** Keep this many of the likeliest tokens; 0 and -1 keep all. */
  top_k?: number | null;
  /** Drop tokens less likely than this share of the likeliest one's. From 0 to 1. */
  min_p?: number | null;
  /** The same seed and prompt give the same answer. */
  seed?: number | null;
  /** The answer ends before the first of these in its text; reasoning and calls may hold them. */
  stop?: string | readonly string[] | null;
  /** The answer ends behind the string of `stop` instead. */
  include_stop_str_in_output?: boolean | null;
  /** Ignore end-of-sequence tokens, for benchmarks. */
  ignore_eos?: boolean | null;
  /** Suppress end-of-sequence tokens before this many tokens. */
  min_tokens?: number | null;
  /** Tokens that end the answer, in addition to the model's own. */
  stop_token_ids?: readonly number[] | null;
  /**
   * Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to
   * 2.
   */
  frequency_penalty?: number | null;
  /** Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2. */
  presence_penalty?: number | null;
  /** Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10. */
  repetition_penalty?: number | null;
  /** llama.cpp's name of `repetition_penalty`. From 0.01 to 10. */
  repeat_penalty?: number | null;
  /** Window of these three penalties in tokens; -1 = all. */
  repeat_last_n?: number | null;
  /** Added to the logits of tokens, by id. */
  logit_bias?: Readonly<Record<number, number>> | null;
  /** Words that the answer must not contain, as token sequences, with and without a space. */
  bad_words?: readonly string[] | null;
  /** Keep logits within this many standard deviations of the largest; 0 and below keep all. */
  top_n_sigma?: number | null;
  /**
   * Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From 0
   * to 1.
   */
  typical_p?: number | null;
  /** Drop tokens below this probability. From 0 to 1. */
  epsilon_cutoff?: number | null;
  /** Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1. */
  eta_cutoff?: number | null;
  /**
   * How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
   * From 0 to 1.
   */
  xtc_probability?: number | null;
  /** The least probability of a top choice. From 0 to 1. */
  xtc_threshold?: number | null;
  /** Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100. */
  dynatemp_range?: number | null;
  /** Exponent of the map from entropy to that range. From 0 to 100. */
  dynatemp_exponent?: number | null;
  /** 2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters. */
  mirostat?: number | null;
  /** Target surprise of a token, in bits. From 0 to 100. */
  mirostat_tau?: number | null;
  /** Learning rate of mirostat. From 0 to 1. */
  mirostat_eta?: number | null;
  /**
   * Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0
   * to 100.
   */
  dry_multiplier?: number | null;
  /** Growth of the penalty with the repetition's length. From 1 to 100. */
  dry_base?: number | null;
  /** Longest repetition without a penalty. */
  dry_allowed_length?: number | null;
  /** Window of the penalty in tokens; -1 = all. */
  dry_penalty_last_n?: number | null;
  /** A repetition does not extend over a token that contains one of these. */
  dry_sequence_breakers?: readonly string[] | null;
  /** Not built yet: accepted only with a value that has no effect. */
  samplers?: readonly ['penalties', 'dry', 'top_n_sigma', 'top_k', 'typ_p', 'top_p', 'min_p', 'xtc', 'temperature'] | null;
  /**
   * Longest answer in tokens; -1 = as long as the context allows, 0 = none: the prompt alone
   * is computed.
   */
  max_tokens?: number | null;
  /** Send the prompt before the answer, and its `logprobs`. */
  echo?: boolean | null;
  /** Not built yet: accepted only with a value that has no effect. */
  prompt_logprobs?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  use_beam_search?: false | null;
  /** Not built yet: accepted only with a value that has no effect. */
  allowed_token_ids?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  truncate_prompt_tokens?: null;
  /** Not built yet: accepted only with a value that has no effect. */
  skip_special_tokens?: true | null;
  /** Not built yet: accepted only with a value that has no effect. */
  add_special_tokens?: true | null;
  /**
   * Generate this many answers and send the `n` likeliest, by mean log-probability; with
   * `stream` it must equal `n`. From 1 to 128.
   */
  best_of?: number | null;
  /** Text after the gap to fill; for models that were trained for it. */
  suffix?: string | null;
  /**
   * Report the log-probability of each token of the answer, and of this many of the likeliest
   * at its position. From 0 to 20.
   */
  logprobs?: number | null;
}

export interface CompletionRequestStreaming extends CompletionRequest {
  stream: true;
}

export interface CompletionRequestNonStreaming extends CompletionRequest {
  stream?: false | null;
}

/** The body of POST /v1/embeddings. */
export interface EmbeddingRequest {
  /** One text or several; each becomes an embedding. */
  input: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** Format of the numbers. */
  encoding_format?: 'float' | 'base64' | null;
  /**
   * Keep the first numbers of each embedding, normalized to length 1 again; useful for models
   * that were trained for it (Matryoshka).
   */
  dimensions?: number | null;
  /** Name of the model's prompt that is put before each text. */
  prompt_name?: string | null;
  /** The model's name. */
  model?: string | null;
  /**
   * Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a
   * longer text is an error.
   */
  truncate_prompt_tokens?: number | null;
  /** Time limit of the whole request in seconds. */
  timeout?: number | null;
  /** Lower is served first. From -100 to 100. */
  priority?: number | null;
  /** Accepted; never affects an answer. */
  user?: unknown;
}

/** The body of POST /v1/score. */
export interface ScoreRequest {
  /** First texts of the pairs. */
  text_1?: string | readonly string[] | null;
  /** Second texts of the pairs. */
  text_2?: string | readonly string[] | null;
  /** The model's name. */
  model?: string | null;
  /**
   * Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a
   * longer text is an error.
   */
  truncate_prompt_tokens?: number | null;
  /** Time limit of the whole request in seconds. */
  timeout?: number | null;
  /** Lower is served first. From -100 to 100. */
  priority?: number | null;
  /** Accepted; never affects an answer. */
  user?: unknown;
}

/** The body of POST /classify. */
export interface ClassifyRequest {
  /** One text or several; each gets a class. */
  input: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** false: logits, not probabilities; true by default. */
  use_activation?: boolean | null;
  /** vLLM's older name of `use_activation`. */
  activation?: boolean | null;
  /** The model's name. */
  model?: string | null;
  /**
   * Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a
   * longer text is an error.
   */
  truncate_prompt_tokens?: number | null;
  /** Time limit of the whole request in seconds. */
  timeout?: number | null;
  /** Lower is served first. From -100 to 100. */
  priority?: number | null;
  /** Accepted; never affects an answer. */
  user?: unknown;
}

/** A document that is ranked. */
export interface RerankDocument {
  /** The document's text. */
  text: string;
}

/** The body of POST /v1/rerank. */
export interface RerankRequest {
  /** The query that documents are ranked by. */
  query: string;
  /** The documents. */
  documents: readonly (string | RerankDocument)[];
  /** Return the best ones only; all by default. */
  top_n?: number | null;
  /** Repeat the documents; true by default. */
  return_documents?: boolean | null;
  /** The model's name. */
  model?: string | null;
  /**
   * Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a
   * longer text is an error.
   */
  truncate_prompt_tokens?: number | null;
  /** Time limit of the whole request in seconds. */
  timeout?: number | null;
  /** Lower is served first. From -100 to 100. */
  priority?: number | null;
  /** Accepted; never affects an answer. */
  user?: unknown;
}

/**
 * stop = the model ended its answer, or a stop string matched; length = the token limit or the
 * context was reached; tool_calls = it ended with tool calls.
 */
export type FinishReason = 'stop' | 'length' | 'tool_calls';

interface MediaTokens {
  /** Tokens that stand for images, which `prompt_tokens` counts; present if there are any. */
  image_tokens?: number;
  /** The same of sound. */
  audio_tokens?: number;
}

/** Breakdown of the prompts' tokens. */
export interface PromptTokensDetails extends MediaTokens {
  /** Tokens that the prefix cache had. */
  cached_tokens: number;
}

/** Tokens of the reasoning, and draft tokens (`--speculate`, `prediction`); what there was. */
export interface CompletionTokensDetails {
  /** Tokens between the marks of the reasoning. */
  reasoning_tokens?: number;
  /** Draft tokens that became a part of the answers. */
  accepted_prediction_tokens?: number;
  /** Rejected draft tokens; they are not in `completion_tokens`. */
  rejected_prediction_tokens?: number;
}

interface DetailedUsage {
  /** Present if there was reasoning, or tokens were drafted. */
  completion_tokens_details?: CompletionTokensDetails;
}

/** Token counts of all answers of a request together. */
export interface Usage extends DetailedUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: PromptTokensDetails;
}

/** Name and arguments of a call. */
export interface FunctionCall {
  name: string;
  /** JSON text of an object. */
  arguments: string;
}

/** A tool call by the model. */
export interface ToolCall {
  /** The id that the tool's message refers to. */
  id: string;
  type: 'function';
  function: FunctionCall;
}

interface Apart {
  /** The model's reasoning, if it was separated from the answer. */
  reasoning_content?: string;
  /** Tool calls, if there are any. */
  tool_calls?: ToolCall[];
}

/** The answer of a chat. */
export interface AssistantMessage extends Apart {
  role: 'assistant';
  /** null beside `tool_calls` if there is no text. */
  content: string | null;
  refusal: null;
}

/**
 * A token and its log-probability, from the logits after penalties and biases, before
 * temperature and filters.
 */
export interface ChatToken {
  /** Its text, with U+FFFD for a part of a character. */
  token: string;
  /** Natural logarithm; -9999 is the minimum. */
  logprob: number;
  /** UTF-8 bytes of its text, or of its part of a character; null if they are not known. */
  bytes: number[] | null;
}

/** A token of an answer. */
export interface ChatTokenLogprob extends ChatToken {
  /** The likeliest tokens at its position, likeliest first, without control tokens. */
  top_logprobs: ChatToken[];
}

/** Log-probabilities of the tokens of the text beside it, without what stop strings cut off. */
export interface ChatLogprobs {
  content: ChatTokenLogprob[];
  refusal: null;
}

/** One answer of a chat completion. */
export interface ChatChoice {
  index: number;
  message: AssistantMessage;
  /** If the request has `logprobs`. */
  logprobs: ChatLogprobs | null;
  finish_reason: FinishReason;
}

interface Fingerprint {
  /** Identifies the artifact: it changes only if its files change. */
  system_fingerprint?: string;
}

/** A whole answer of /v1/chat/completions. */
export interface ChatCompletion extends Fingerprint {
  id: string;
  object: 'chat.completion';
  /** Seconds since 1970. */
  created: number;
  model: string;
  choices: ChatChoice[];
  usage: Usage;
}

/** Parts of a name and of arguments that a chunk adds. */
export interface FunctionDelta {
  name?: string;
  arguments?: string;
}

interface NamesCall {
  id?: string;
  type?: 'function';
}

/** What a chunk adds to a call: first its id and name, then its arguments. */
export interface ToolCallDelta extends NamesCall {
  /** Number of the call in the answer. */
  index: number;
  function: FunctionDelta;
}

/** What a chunk adds to the answer; the first one names the role, the last one is empty. */
export interface ChatDelta {
  role?: 'assistant';
  content?: string;
  reasoning_content?: string;
  tool_calls?: ToolCallDelta[];
}

/** A piece of one answer of a chat completion. */
export interface ChatChunkChoice {
  index: number;
  delta: ChatDelta;
  /** If the request has `logprobs`, beside text. */
  logprobs: ChatLogprobs | null;
  /** Why the answer ended, in its last chunk. */
  finish_reason: FinishReason | null;
}

interface UsageAtEnd {
  /** Identifies the artifact: it changes only if its files change. */
  system_fingerprint?: string;
  /** With `stream_options.include_usage`: in a last chunk without choices, null before. */
  usage?: Usage | null;
}

/** A server-sent event of /v1/chat/completions. */
export interface ChatCompletionChunk extends UsageAtEnd {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  choices: ChatChunkChoice[];
}

/**
 * Log-probabilities of the tokens of the text beside it, with `echo` those of the prompt
 * before them; what stop strings cut off is left out.
 */
export interface CompletionLogprobs {
  /** Texts of the tokens; a part of a character is written `bytes:\xe2`. */
  tokens: string[];
  /**
   * Natural logarithms, from the logits after penalties and biases, before temperature and
   * filters. -9999 is the minimum; null for a prompt's first token.
   */
  token_logprobs: (number | null)[];
  /** The likeliest tokens at each position by their texts, and the token itself. */
  top_logprobs: (Record<string, number> | null)[];
  /** Where each token begins: number of code points of text before it. */
  text_offset: number[];
}

/** The answer to one prompt; `index` is the prompt's number. */
export interface CompletionChoice {
  index: number;
  text: string;
  /** If the request has `logprobs`. */
  logprobs: CompletionLogprobs | null;
  finish_reason: FinishReason;
}

/** A whole answer of /v1/completions, one choice per prompt. */
export interface Completion extends Fingerprint {
  id: string;
  object: 'text_completion';
  /** Seconds since 1970. */
  created: number;
  model: string;
  choices: CompletionChoice[];
  usage: Usage;
}

/** A piece of the answer to one prompt. */
export interface CompletionChunkChoice {
  index: number;
  text: string;
  /** If the request has `logprobs`. */
  logprobs: CompletionLogprobs | null;
  /** Why the answer ended, in its last chunk. */
  finish_reason: FinishReason | null;
}

/** A server-sent event of /v1/completions; those of several prompts are interleaved. */
export interface CompletionChunk extends UsageAtEnd {
  id: string;
  object: 'text_completion';
  created: number;
  model: string;
  choices: CompletionChunkChoice[];
}

/**
 * loaded = ready; loading = requests wait for it; unloaded = the next request loads it;
 * sleeping = out of memory until /wake_up.
 */
export type ModelState = 'loaded' | 'loading' | 'unloaded' | 'sleeping';

/** Bounds in pixels: a model reads nothing more of an image that is larger than any of them. */
export interface ImageSize {
  longest_edge?: number;
  shortest_edge?: number;
  /** Width times height. */
  max_pixels?: number;
}

interface Modalities {
  /** Of a model that sees or hears: text, and image or audio. */
  input_modalities?: string[];
  /** Of a model that sees: clients may scale larger images down to it. */
  image_size?: ImageSize;
}

/** Permissions that clients of vLLM read, as OpenAI's API listed them: equal for all models. */
export interface ModelPermission {
  id: string;
  object: 'model_permission';
  created: number;
  allow_create_engine: boolean;
  allow_sampling: boolean;
  allow_logprobs: boolean;
  allow_search_indices: boolean;
  allow_view: boolean;
  allow_fine_tuning: boolean;
  organization: string;
  group: string | null;
  is_blocking: boolean;
}

/** One entry of /v1/models. */
export interface Model extends Modalities {
  id: string;
  object: 'model';
  created: number;
  owned_by: 'mlcc';
  /** A model that is not loaded is loaded on demand. */
  state: ModelState;
  /** Longest prompt and answer together, in tokens. */
  context_length: number;
  /** The same number under vLLM's name. */
  max_model_len: number;
  /** Other names of the model. */
  aliases: string[];
  /** Planned memory while it is loaded; null if there is no plan. */
  memory_bytes: number | null;
  /** Requests waiting or being answered. */
  requests: number;
  /** The base model of an adapter (LoRA). */
  parent: string | null;
  /** The model that computes the answers: itself, or an adapter's base model. */
  root: string;
  permission: ModelPermission[];
  /** Share of the model's bytes that have been read, 0 to 1; null unless it is being loaded. */
  progress: number | null;
  /** Values of a request without its own: temperature, top_p, ...; empty for an encoder. */
  default_sampling: Record<string, number>;
}

/** The answer of /v1/models. */
export interface ModelList {
  object: 'list';
  data: Model[];
}

/** Token counts of all texts of a request together. */
export interface EncoderUsage {
  prompt_tokens: number;
  total_tokens: number;
}

/** The embedding of one text. */
export interface Embedding {
  object: 'embedding';
  index: number;
  /** Numbers, or base64 of little-endian float32, by `encoding_format`. */
  embedding: number[] | string;
}

/** The answer of /v1/embeddings, in the order of the texts. */
export interface EmbeddingList {
  object: 'list';
  data: Embedding[];
  model: string;
  usage: EncoderUsage;
}

/** What is counted of a recording. */
export interface AudioUsage {
  type: 'duration';
  seconds: number;
}

/** A part of a transcript between two of the model's timestamps; times are in seconds. */
export interface TranscriptionSegment {
  id: number;
  /** The frame, of 10 ms, at which its window begins. */
  seek: number;
  start: number;
  end: number;
  text: string;
  tokens: number[];
  /** The mean of its window's tokens. */
  avg_logprob: number;
  compression_ratio: number;
  /** At which its window was transcribed. */
  temperature: number;
}

/** A word of a transcript, with its times in seconds. */
export interface TranscriptionWord {
  word: string;
  start: number;
  end: number;
}

interface Verbose {
  /** transcribe or translate, as all below in the format verbose_json. */
  task?: string;
  language?: string;
  /** Seconds of the recording. */
  duration?: number;
  segments?: TranscriptionSegment[];
  /** If `timestamp_granularities` asks for them. */
  words?: TranscriptionWord[];
}

/**
 * The answer of /v1/audio/transcriptions and /translations in the formats json and
 * verbose_json.
 */
export interface Transcription extends Verbose {
  text: string;
  usage: AudioUsage;
}

interface TranscriptText {
  /** A part of the text, in transcript.text.delta. */
  delta?: string;
  /** All of it, in transcript.text.done. */
  text?: string;
  usage?: AudioUsage;
}

/** A server-sent event of a transcript. */
export interface TranscriptEvent extends TranscriptText {
  /** transcript.text.delta, or transcript.text.done at the end. */
  type: string;
}

/** The score of one pair of texts. */
export interface Score {
  index: number;
  object: 'score';
  score: number;
}

/** The answer of /v1/score. */
export interface ScoreList {
  id: string;
  object: 'list';
  created: number;
  model: string;
  data: Score[];
  usage: EncoderUsage;
}

/** The class of one text. */
export interface Classified {
  index: number;
  /** The likeliest class. */
  label: string;
  /** The probability of each class, in the model's order. */
  probs: number[];
  num_classes: number;
}

/** The answer of /classify. */
export interface ClassList {
  id: string;
  object: 'list';
  created: number;
  model: string;
  data: Classified[];
  usage: EncoderUsage;
}

/** A document, as it was sent. */
export interface RankedText {
  text: string;
}

interface WithDocument {
  /** Unless `return_documents` was false. */
  document?: RankedText;
}

/** Rank of one document. */
export interface Ranked extends WithDocument {
  /** Index among the documents of the request. */
  index: number;
  relevance_score: number;
}

/** The answer of /v1/rerank: the best document first. */
export interface Ranking {
  id: string;
  model: string;
  usage: EncoderUsage;
  results: Ranked[];
}

/** Message, type, field and code of an error. */
export interface ErrorObject {
  /** What happened, why, and what to do next. */
  message: string;
  /** invalid_request_error, or server_error. */
  type: string;
  /** The field of the request that is wrong. */
  param: string | null;
  /** Stable, for programs: context_length_exceeded, queue_full, device_lost, ... */
  code: string | null;
}

/** The body of an error response, and the last event of a stream that failed. */
export interface ErrorBody {
  error: ErrorObject;
}
