/** The npm package `mlcc`: a language model in a browser tab. */

export type * from './api.js';
export { type AdapterOptions, CreateEngine, Engine, type EngineOptions } from './engine.js';
export * from './errors.js';
export { droppedFolder } from './model/download/dropped_folder.js';
export { type Folder, folderOf } from './model/download/folder.js';
export type { AdapterSource } from './model/download/lora_files.js';
export { removeModel, type StoredModel, storedModels } from './model/store/catalog.js';
export type { Timing } from './openai/timing.js';
export type { TranscriptionRequest } from './openai/transcriptions.js';
export type { TabInfo } from './worker/messages.js';
export { type RelayOptions, registerRelay } from './worker/relay.js';
export type { Progress, Stage } from './worker/startup.js';
