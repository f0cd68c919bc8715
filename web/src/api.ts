// Written by `python -m tools.api_types` from runtime/mlcc/api: change that and run it again.

/**
 * Requests and answers of the API: what `fetch('/v1/...')` takes and gives, in a tab or elsewhere.
 *
 * Not OpenAI's whole API: a field that is not built yet accepts only what changes nothing.
 */

/** A part of a message. */
export interface TextPart {
  type: 'text';
  text: string;
}

/** What a message's call calls. */
export interface CalledFunction {
  /** Which tool. */
  name: string;
  /** As JSON's text. */
  arguments?: string | null;
}

/** A call of a tool that an assistant's message made. */
export interface MessageToolCall {
  /** What the tool's message names it by. */
  id?: string | null;
  type?: 'function' | null;
  /** What was called. */
  function: CalledFunction;
  /** Accepted; never changes an answer. */
  index?: unknown;
}

/** A function that the model may call. */
export interface ToolFunction {
  /** What the model calls it by. */
  name: string;
  /** What it does, for the model. */
  description?: string | null;
  /** The schema of its arguments; without, it takes none. */
  parameters?: unknown;
  /** Refuse a schema that arguments cannot be held to, instead of holding them to a part. */
  strict?: boolean | null;
}

/** A tool that the model may call. */
export interface Tool {
  type: 'function';
  /** What may be called. */
  function: ToolFunction;
}

/** A function of `tools`, by its name. */
export interface NamedFunction {
  name: string;
}

/** The tool to call. */
export interface NamedTool {
  type: 'function';
  /** The one to call. */
  function: NamedFunction;
}

/** Which of `tools` may be called. */
export interface AllowedToolsList {
  /** Whether one must be called. */
  mode: 'auto' | 'required';
  /** Those of `tools`. */
  tools: readonly NamedTool[];
}

/** A choice among some of `tools`. */
export interface AllowedTools {
  type: 'allowed_tools';
  /** Which may be called. */
  allowed_tools: AllowedToolsList;
}

/** Whether and how long the model thinks. */
export interface ThinkingSwitch {
  /** Whether the model thinks; adaptive = as it likes. */
  type: string;
  /** Another name of `thinking_budget`. */
  budget_tokens?: number | null;
  /** Accepted; never changes an answer. */
  display?: unknown;
}

/** One message of a conversation. */
export interface Message {
  /** Who says it; developer is another name of system. */
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  /** What is said: a text, or texts that are joined. May be null beside `tool_calls`. */
  content?: string | readonly TextPart[] | null;
  /** Who of several speaks, for templates that know names. */
  name?: string | null;
  /** An assistant's: tools it called. */
  tool_calls?: readonly MessageToolCall[] | null;
  /** A tool's: the call that it answers. */
  tool_call_id?: string | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  function_call?: null;
  /** What an assistant thought before it said this. */
  reasoning_content?: string | null;
  /** Another name of `reasoning_content`. */
  reasoning?: string | null;
  /**
   * Of a last message of the assistant's: the answer begins with it, and goes on where it
   * ends.
   */
  prefix?: boolean | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  audio?: null;
  /** Not built yet: accepted only with a value that changes nothing. */
  refusal?: '' | null;
  /** Accepted; never changes an answer. */
  annotations?: unknown;
}

/** How a stream is sent. */
export interface StreamOptions {
  /** End the stream with a chunk that counts the tokens. */
  include_usage?: boolean | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  include_obfuscation?: false | null;
}

/** What an answer is foretold to be. */
export interface Prediction {
  /** Always `content`. */
  type: 'content';
  /** The text, or texts that are joined. */
  content: string | readonly TextPart[];
}

/** A schema of JSON, as OpenAI's API has it. */
export interface JsonSchemaFormat {
  /** The schema of the answer. */
  schema: unknown;
  /** Accepted; never changes an answer. */
  name?: unknown;
  /** Accepted; never changes an answer. */
  description?: unknown;
  /** Accepted; never changes an answer. */
  strict?: unknown;
}

/** What kind of text an answer is. */
export interface ResponseFormat {
  /** What the answer is. */
  type: 'text' | 'json_object' | 'json_schema';
  /** Only with the type `json_schema`. */
  json_schema?: JsonSchemaFormat | null;
}

/** What an answer must be, as vLLM's API has it: one of these. */
export interface StructuredOutputs {
  /** A JSON Schema. */
  json?: unknown;
  /** Any object of JSON. */
  json_object?: boolean | null;
  /** A regular expression for the whole answer. */
  regex?: string | null;
  /** The answer is one of these. */
  choice?: readonly string[] | null;
  /** A grammar, in GBNF or Lark. */
  grammar?: string | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  structural_tag?: null;
  /** Not built yet: accepted only with a value that changes nothing. */
  whitespace_pattern?: null;
  /** Not built yet: accepted only with a value that changes nothing. */
  disable_any_whitespace?: false | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  disable_additional_properties?: false | null;
  /** Accepted; never changes an answer. */
  disable_fallback?: unknown;
}

/** The body of POST /v1/chat/completions. */
export interface ChatCompletionRequest {
  /** The conversation so far. */
  messages: readonly Message[];
  /** Which model; where there is one, it may be left out. */
  model?: string | null;
  /** Send the answer as it is made, as server-sent events. */
  stream?: boolean | null;
  /** Only with `stream`. */
  stream_options?: StreamOptions | null;
  /**
   * Answers to each prompt, which is computed once; with a `seed` each gets its own from it.
   * From 1 to 128.
   */
  n?: number | null;
  /** What was computed for a prompt is used again only for requests of the same salt. */
  cache_salt?: string | null;
  /**
   * Lower is answered first among the requests of an API key; it counts less and less while
   * others wait. From -100 to 100.
   */
  priority?: number | null;
  /** Seconds in which the whole answer must be there, if that is less than the server allows. */
  timeout?: number | null;
  /** Accepted; never changes an answer. */
  user?: unknown;
  /** Accepted; never changes an answer. */
  metadata?: unknown;
  /** Not built yet: accepted only with a value that changes nothing. */
  store?: false | null;
  /** The answer is JSON. */
  response_format?: ResponseFormat | null;
  /** One kind of thing that the answer is. */
  structured_outputs?: StructuredOutputs | null;
  /** vLLM's older name of a JSON Schema. */
  guided_json?: unknown;
  /** vLLM's older name of a regular expression. */
  guided_regex?: string | null;
  /** vLLM's older name of a list of answers. */
  guided_choice?: readonly string[] | null;
  /** vLLM's older name of a grammar. */
  guided_grammar?: string | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  guided_whitespace_pattern?: null;
  /** Accepted; never changes an answer. */
  guided_decoding_backend?: unknown;
  /** llama.cpp's name of a grammar in GBNF. */
  grammar?: string | null;
  /** llama.cpp's name of a JSON Schema. */
  json_schema?: unknown;
  /** Divides the logits; 0 always takes the likeliest token. From 0 to 2. */
  temperature?: number | null;
  /** Keep the fewest likeliest tokens of at least this mass; 1 keeps all. From 0 to 1. */
  top_p?: number | null;
  /** Keep this many of the likeliest tokens; 0 and -1 keep all. */
  top_k?: number | null;
  /** Drop tokens less likely than this share of the likeliest one's. From 0 to 1. */
  min_p?: number | null;
  /** The same seed and prompt give the same answer. */
  seed?: number | null;
  /** The answer ends before the first of these. */
  stop?: string | readonly string[] | null;
  /** Longest answer in tokens; -1 = as long as the context allows. */
  max_tokens?: number | null;
  /** Go on where the model would end, as benchmarks want. */
  ignore_eos?: boolean | null;
  /** No end of the model's before so many tokens. */
  min_tokens?: number | null;
  /** Tokens that end the answer, beside the model's own. */
  stop_token_ids?: readonly number[] | null;
  /**
   * Makes a token less likely each time that the answer has had it; below 0, more. From -2 to
   * 2.
   */
  frequency_penalty?: number | null;
  /** Makes tokens less likely that the answer has had; below 0, more. From -2 to 2. */
  presence_penalty?: number | null;
  /** Above 1, makes tokens less likely that prompt or answer have had. From 0.01 to 10. */
  repetition_penalty?: number | null;
  /** llama.cpp's name of `repetition_penalty`. From 0.01 to 10. */
  repeat_penalty?: number | null;
  /** Last tokens that these three penalties look at; -1 = all. */
  repeat_last_n?: number | null;
  /** What is added to the logit of a token, by its id. */
  logit_bias?: Readonly<Record<number, number>> | null;
  /** Words that the answer must not have, each as its tokens are, alone or behind a space. */
  bad_words?: readonly string[] | null;
  /** Keep logits within so many standard deviations of the largest; 0 and below keep all. */
  top_n_sigma?: number | null;
  /**
   * Keep this mass of the tokens that surprise most nearly as expected; 1 keeps all. From 0 to
   * 1.
   */
  typical_p?: number | null;
  /** Drop tokens of a probability less than this. From 0 to 1. */
  epsilon_cutoff?: number | null;
  /**
   * Drop tokens of a probability less than this, or less yet where many are likely. From 0 to
   * 1.
   */
  eta_cutoff?: number | null;
  /**
   * How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
   * From 0 to 1.
   */
  xtc_probability?: number | null;
  /** The probability from which on a token is a top choice. From 0 to 1. */
  xtc_threshold?: number | null;
  /**
   * The temperature is so much lower where one token is likely, and higher where many are.
   * From 0 to 100.
   */
  dynatemp_range?: number | null;
  /** How the entropy maps to that range. From 0 to 100. */
  dynatemp_exponent?: number | null;
  /** 2 keeps the surprise of the answer near `mirostat_tau`, in place of other filters. */
  mirostat?: number | null;
  /** The surprise of a token, in bits. From 0 to 100. */
  mirostat_tau?: number | null;
  /** How fast mirostat learns. From 0 to 1. */
  mirostat_eta?: number | null;
  /**
   * Above 0, a token that would go on with a repetition loses this and more the longer it is.
   * From 0 to 100.
   */
  dry_multiplier?: number | null;
  /** How fast that grows with its length. From 1 to 100. */
  dry_base?: number | null;
  /** The longest repetition that is free. */
  dry_allowed_length?: number | null;
  /** Last tokens that are looked at; -1 = all. */
  dry_penalty_last_n?: number | null;
  /** No repetition reaches over a token that has one of these. */
  dry_sequence_breakers?: readonly string[] | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  samplers?: readonly ['penalties', 'dry', 'top_n_sigma', 'top_k', 'typ_p', 'top_p', 'min_p', 'xtc', 'temperature'] | null;
  /** The newer name of `max_tokens`. */
  max_completion_tokens?: number | null;
  /** Tell the log-probability of each token of the answer. */
  logprobs?: boolean | null;
  /** With `logprobs`: tell this many of the likeliest tokens in each place, too. From 0 to 20. */
  top_logprobs?: number | null;
  /** Functions that the model may call. */
  tools?: readonly Tool[] | null;
  /** Whether a tool is called: as the model likes, none, at least one, or this one. */
  tool_choice?: 'auto' | 'none' | 'required' | NamedTool | AllowedTools | null;
  /** false: one call at most in an answer. */
  parallel_tool_calls?: boolean | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  functions?: readonly [] | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  function_call?: 'none' | 'auto' | null;
  /** How much the model thinks, where its template knows that; none = not at all. */
  reasoning_effort?: 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max' | null;
  /** Whether it thinks, where its template knows that. */
  enable_thinking?: boolean | null;
  /** Tokens after which its reasoning is ended, and the answer begins. */
  thinking_budget?: number | null;
  /** Both of these as Anthropic and others say it. */
  thinking?: ThinkingSwitch | null;
  /** Variables of the model's chat template. */
  chat_template_kwargs?: unknown;
  /** Not built yet: accepted only with a value that changes nothing. */
  verbosity?: 'medium' | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  modalities?: readonly ['text'] | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  audio?: null;
  /** Not built yet: accepted only with a value that changes nothing. */
  web_search_options?: null;
  /** Not built yet: accepted only with a value that changes nothing. */
  moderation?: null;
  /**
   * What much of the answer will be, as of a file that is edited: it may come faster, and is
   * the same.
   */
  prediction?: Prediction | null;
  /** Accepted; never changes an answer. */
  prompt_cache_key?: unknown;
  /** Accepted; never changes an answer. */
  prompt_cache_options?: unknown;
  /** Accepted; never changes an answer. */
  prompt_cache_retention?: unknown;
  /** Accepted; never changes an answer. */
  safety_identifier?: unknown;
  /** Accepted; never changes an answer. */
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
  /** Which model; where there is one, it may be left out. */
  model?: string | null;
  /** Send the answer as it is made, as server-sent events. */
  stream?: boolean | null;
  /** Only with `stream`. */
  stream_options?: StreamOptions | null;
  /**
   * Answers to each prompt, which is computed once; with a `seed` each gets its own from it.
   * From 1 to 128.
   */
  n?: number | null;
  /** What was computed for a prompt is used again only for requests of the same salt. */
  cache_salt?: string | null;
  /**
   * Lower is answered first among the requests of an API key; it counts less and less while
   * others wait. From -100 to 100.
   */
  priority?: number | null;
  /** Seconds in which the whole answer must be there, if that is less than the server allows. */
  timeout?: number | null;
  /** Accepted; never changes an answer. */
  user?: unknown;
  /** Accepted; never changes an answer. */
  metadata?: unknown;
  /** Not built yet: accepted only with a value that changes nothing. */
  store?: false | null;
  /** The answer is JSON. */
  response_format?: ResponseFormat | null;
  /** One kind of thing that the answer is. */
  structured_outputs?: StructuredOutputs | null;
  /** vLLM's older name of a JSON Schema. */
  guided_json?: unknown;
  /** vLLM's older name of a regular expression. */
  guided_regex?: string | null;
  /** vLLM's older name of a list of answers. */
  guided_choice?: readonly string[] | null;
  /** vLLM's older name of a grammar. */
  guided_grammar?: string | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  guided_whitespace_pattern?: null;
  /** Accepted; never changes an answer. */
  guided_decoding_backend?: unknown;
  /** llama.cpp's name of a grammar in GBNF. */
  grammar?: string | null;
  /** llama.cpp's name of a JSON Schema. */
  json_schema?: unknown;
  /** Divides the logits; 0 always takes the likeliest token. From 0 to 2. */
  temperature?: number | null;
  /** Keep the fewest likeliest tokens of at least this mass; 1 keeps all. From 0 to 1. */
  top_p?: number | null;
  /** Keep this many of the likeliest tokens; 0 and -1 keep all. */
  top_k?: number | null;
  /** Drop tokens less likely than this share of the likeliest one's. From 0 to 1. */
  min_p?: number | null;
  /** The same seed and prompt give the same answer. */
  seed?: number | null;
  /** The answer ends before the first of these. */
  stop?: string | readonly string[] | null;
  /** Longest answer in tokens; -1 = as long as the context allows. */
  max_tokens?: number | null;
  /** Go on where the model would end, as benchmarks want. */
  ignore_eos?: boolean | null;
  /** No end of the model's before so many tokens. */
  min_tokens?: number | null;
  /** Tokens that end the answer, beside the model's own. */
  stop_token_ids?: readonly number[] | null;
  /**
   * Makes a token less likely each time that the answer has had it; below 0, more. From -2 to
   * 2.
   */
  frequency_penalty?: number | null;
  /** Makes tokens less likely that the answer has had; below 0, more. From -2 to 2. */
  presence_penalty?: number | null;
  /** Above 1, makes tokens less likely that prompt or answer have had. From 0.01 to 10. */
  repetition_penalty?: number | null;
  /** llama.cpp's name of `repetition_penalty`. From 0.01 to 10. */
  repeat_penalty?: number | null;
  /** Last tokens that these three penalties look at; -1 = all. */
  repeat_last_n?: number | null;
  /** What is added to the logit of a token, by its id. */
  logit_bias?: Readonly<Record<number, number>> | null;
  /** Words that the answer must not have, each as its tokens are, alone or behind a space. */
  bad_words?: readonly string[] | null;
  /** Keep logits within so many standard deviations of the largest; 0 and below keep all. */
  top_n_sigma?: number | null;
  /**
   * Keep this mass of the tokens that surprise most nearly as expected; 1 keeps all. From 0 to
   * 1.
   */
  typical_p?: number | null;
  /** Drop tokens of a probability less than this. From 0 to 1. */
  epsilon_cutoff?: number | null;
  /**
   * Drop tokens of a probability less than this, or less yet where many are likely. From 0 to
   * 1.
   */
  eta_cutoff?: number | null;
  /**
   * How often all tokens from `xtc_threshold` on are excluded but the least likely of them.
   * From 0 to 1.
   */
  xtc_probability?: number | null;
  /** The probability from which on a token is a top choice. From 0 to 1. */
  xtc_threshold?: number | null;
  /**
   * The temperature is so much lower where one token is likely, and higher where many are.
   * From 0 to 100.
   */
  dynatemp_range?: number | null;
  /** How the entropy maps to that range. From 0 to 100. */
  dynatemp_exponent?: number | null;
  /** 2 keeps the surprise of the answer near `mirostat_tau`, in place of other filters. */
  mirostat?: number | null;
  /** The surprise of a token, in bits. From 0 to 100. */
  mirostat_tau?: number | null;
  /** How fast mirostat learns. From 0 to 1. */
  mirostat_eta?: number | null;
  /**
   * Above 0, a token that would go on with a repetition loses this and more the longer it is.
   * From 0 to 100.
   */
  dry_multiplier?: number | null;
  /** How fast that grows with its length. From 1 to 100. */
  dry_base?: number | null;
  /** The longest repetition that is free. */
  dry_allowed_length?: number | null;
  /** Last tokens that are looked at; -1 = all. */
  dry_penalty_last_n?: number | null;
  /** No repetition reaches over a token that has one of these. */
  dry_sequence_breakers?: readonly string[] | null;
  /** Not built yet: accepted only with a value that changes nothing. */
  samplers?: readonly ['penalties', 'dry', 'top_n_sigma', 'top_k', 'typ_p', 'top_p', 'min_p', 'xtc', 'temperature'] | null;
  /** Send the prompt before the answer, and its `logprobs`. */
  echo?: boolean | null;
  /**
   * Make so many answers and send the `n` likeliest, by their mean token; not with `stream` if
   * that is fewer. From 1 to 128.
   */
  best_of?: number | null;
  /** What follows the gap that is to be filled; for models that were trained for it. */
  suffix?: string | null;
  /**
   * Tell the log-probability of each token of the answer, and of this many of the likeliest in
   * its place. From 0 to 20.
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
  /** One text or several; each becomes a row. */
  input: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  /** How numbers are written. */
  encoding_format?: 'float' | 'base64' | null;
  /**
   * Keep so many numbers of each row, from the first, and make it of length 1 again: of use
   * with models that were trained for it (Matryoshka).
   */
  dimensions?: number | null;
  /** Which of the model's prompts goes before each text; the names are the model's own. */
  prompt_name?: string | null;
  /** The model's name. */
  model?: string | null;
  /**
   * Cut longer texts at so many tokens, -1 = at the most that the model takes. Without it a
   * longer text is an error.
   */
  truncate_prompt_tokens?: number | null;
  /** Seconds that the whole request may take. */
  timeout?: number | null;
  /** Lower is served first. From -100 to 100. */
  priority?: number | null;
  /** Accepted; never changes an answer. */
  user?: unknown;
}

/** The body of POST /v1/score. */
export interface ScoreRequest {
  /** The first of each pair. */
  text_1?: string | readonly string[] | null;
  /** The second. */
  text_2?: string | readonly string[] | null;
  /** The model's name. */
  model?: string | null;
  /**
   * Cut longer texts at so many tokens, -1 = at the most that the model takes. Without it a
   * longer text is an error.
   */
  truncate_prompt_tokens?: number | null;
  /** Seconds that the whole request may take. */
  timeout?: number | null;
  /** Lower is served first. From -100 to 100. */
  priority?: number | null;
  /** Accepted; never changes an answer. */
  user?: unknown;
}

/** A document that is ranked. */
export interface RerankDocument {
  /** What is ranked. */
  text: string;
}

/** The body of POST /v1/rerank. */
export interface RerankRequest {
  /** What the documents are ranked by. */
  query: string;
  /** What is ranked. */
  documents: readonly (string | RerankDocument)[];
  /** Answer so many, the best; all unless said. */
  top_n?: number | null;
  /** Say the documents again; true unless said. */
  return_documents?: boolean | null;
  /** The model's name. */
  model?: string | null;
  /**
   * Cut longer texts at so many tokens, -1 = at the most that the model takes. Without it a
   * longer text is an error.
   */
  truncate_prompt_tokens?: number | null;
  /** Seconds that the whole request may take. */
  timeout?: number | null;
  /** Lower is served first. From -100 to 100. */
  priority?: number | null;
  /** Accepted; never changes an answer. */
  user?: unknown;
}

/**
 * stop = the model ended its answer, or a stop string came; length = no more tokens were
 * allowed, or fit; tool_calls = it ended, and calls tools.
 */
export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** What the tokens of the prompts were. */
export interface PromptTokensDetails {
  /** Those that were not computed again: an earlier request began alike. */
  cached_tokens: number;
}

/** What became of tokens that were guessed ahead of the model (`--speculate`, `prediction`). */
export interface CompletionTokensDetails {
  /** Those that are in the answers. */
  accepted_prediction_tokens: number;
  /** Those that were computed in vain; they are not in `completion_tokens`. */
  rejected_prediction_tokens: number;
}

interface Guessed {
  /** Where something was guessed. */
  completion_tokens_details?: CompletionTokensDetails;
}

/** Tokens of all answers of a request together. */
export interface Usage extends Guessed {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: PromptTokensDetails;
}

/** What is called. */
export interface FunctionCall {
  name: string;
  /** JSON's text, of an object. */
  arguments: string;
}

/** A tool that the model calls. */
export interface ToolCall {
  /** What the message that answers it names. */
  id: string;
  type: 'function';
  function: FunctionCall;
}

interface Apart {
  /** What the model thought before it answered, where it thinks. */
  reasoning_content?: string;
  /** Tools that it calls, if it does. */
  tool_calls?: ToolCall[];
}

/** The answer of a chat. */
export interface AssistantMessage extends Apart {
  role: 'assistant';
  /** null beside `tool_calls`, if nothing else is said. */
  content: string | null;
  refusal: null;
}

/**
 * A token and its log-probability: with logits after penalties and biases, before temperature
 * and filters.
 */
export interface ChatToken {
  /** Its text, with U+FFFD where it is a part of a character. */
  token: string;
  /** Natural; -9999 is the least. */
  logprob: number;
  /** Of its text in UTF-8; of a part of a character those, or null where they are not known. */
  bytes: number[] | null;
}

/** A token of an answer. */
export interface ChatTokenLogprob extends ChatToken {
  /** The likeliest in its place, the likeliest first; those that steer the model are left out. */
  top_logprobs: ChatToken[];
}

/** Of the tokens that the text beside it is made of; what stop strings cut off is left out. */
export interface ChatLogprobs {
  content: ChatTokenLogprob[];
  refusal: null;
}

/** One answer of a chat completion. */
export interface ChatChoice {
  index: number;
  message: AssistantMessage;
  /** With `logprobs` in the request. */
  logprobs: ChatLogprobs | null;
  finish_reason: FinishReason;
}

interface Fingerprint {
  /** Of the artifact that answers: the same as long as its files are. */
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

/** What a chunk adds to what is called. */
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
  /** Of the call in the answer. */
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
  /** With `logprobs` in the request, beside text. */
  logprobs: ChatLogprobs | null;
  /** Why the answer ended, in its last chunk. */
  finish_reason: FinishReason | null;
}

interface UsageAtEnd {
  /** Of the artifact that answers: the same as long as its files are. */
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
 * Of the tokens that the text beside it is made of, an entry each, with `echo` those of the
 * prompt before them; what stop strings cut off is left out.
 */
export interface CompletionLogprobs {
  /** Their texts; a part of a character is written `bytes:\xe2`. */
  tokens: string[];
  /**
   * Natural; with logits after penalties and biases, before temperature and filters. -9999 is
   * the least; null for a prompt's first token, which follows nothing.
   */
  token_logprobs: (number | null)[];
  /** The likeliest in each place by their texts, and the token itself. */
  top_logprobs: (Record<string, number> | null)[];
  /** Where each begins: characters (Unicode's code points) of the text before it. */
  text_offset: number[];
}

/** The answer to one prompt; `index` is the prompt's number. */
export interface CompletionChoice {
  index: number;
  text: string;
  /** With `logprobs` in the request. */
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
  /** With `logprobs` in the request. */
  logprobs: CompletionLogprobs | null;
  /** Why the answer ended, in its last chunk. */
  finish_reason: FinishReason | null;
}

/** A server-sent event of /v1/completions; those of several prompts are mixed. */
export interface CompletionChunk extends UsageAtEnd {
  id: string;
  object: 'text_completion';
  created: number;
  model: string;
  choices: CompletionChunkChoice[];
}

/**
 * loaded = it answers at once; loading = who asks for it waits; unloaded = it is loaded for
 * whoever asks first.
 */
export type ModelState = 'loaded' | 'loading' | 'unloaded';

/** One entry of /v1/models. */
export interface Model {
  id: string;
  object: 'model';
  created: number;
  owned_by: 'mlcc';
  /** What is not loaded is when it is asked for. */
  state: ModelState;
  /** Tokens of a prompt and its answer together. */
  context_length: number;
  /** The same, as vLLM calls it. */
  max_model_len: number;
  /** Other names that it answers to. */
  aliases: string[];
  /** Planned for it while it is loaded, where somebody planned. */
  memory_bytes: number | null;
  /** Those that wait or are being answered. */
  requests: number;
  /** Of an adapter (LoRA): the model that it adapts. */
  parent: string | null;
}

/** The answer of /v1/models. */
export interface ModelList {
  object: 'list';
  data: Model[];
}

/** Tokens of all texts of a request together. */
export interface EncoderUsage {
  prompt_tokens: number;
  total_tokens: number;
}

/** What one text became. */
export interface Embedding {
  object: 'embedding';
  index: number;
  /** Numbers, or base64 of little-endian float32, as `encoding_format` said. */
  embedding: number[] | string;
}

/** The answer of /v1/embeddings, in the order of the texts. */
export interface EmbeddingList {
  object: 'list';
  data: Embedding[];
  model: string;
  usage: EncoderUsage;
}

/** How well the texts of one pair go together. */
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

/** A document, as it was sent. */
export interface RankedText {
  text: string;
}

interface WithDocument {
  /** Unless `return_documents` was false. */
  document?: RankedText;
}

/** One document's place. */
export interface Ranked extends WithDocument {
  /** Among the documents of the request. */
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

/** What went wrong. */
export interface ErrorObject {
  /** What happened, why, and what to do next. */
  message: string;
  /** invalid_request_error, or server_error. */
  type: string;
  /** The field of the request that is at fault. */
  param: string | null;
  /** Stable, for programs: context_length_exceeded, queue_full, device_lost, ... */
  code: string | null;
}

/** The body of every answer that is no success, and the last event of a stream that broke. */
export interface ErrorBody {
  error: ErrorObject;
}
