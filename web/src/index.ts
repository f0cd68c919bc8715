/** The package `mlcc`: a language model in this tab. */

export type * from './api.js';
export { type AdapterOptions, CreateEngine, Engine, type EngineOptions } from './engine.js';
export * from './errors.js';
export { removeModel, type StoredModel, storedModels } from './model/catalog.js';
export { droppedFolder } from './model/dropped.js';
export { type Folder, folderOf } from './model/folder.js';
export type { AdapterSource } from './model/lora_files.js';
export { type RelayOptions, registerRelay } from './relay.js';
export type { Progress, Stage } from './startup.js';
export type { TabInfo } from './tab.js';
export type { Timing } from './timing.js';
