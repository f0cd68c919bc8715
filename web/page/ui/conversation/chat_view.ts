/**
 * The open conversation: the log, the dock with the message field, and the events between them.
 * `chat.ts` sends requests, `library.ts` stores conversations.
 */

import { AttachmentError } from '../../conversation/attachments.js';
import { Chat } from '../../conversation/chat.js';
import {
  type AttachedImage,
  type AttachedSound,
  type Attachment,
  Conversation,
  type Message,
} from '../../conversation/conversation.js';
import { checkImages, imagesOf, isImage } from '../../conversation/images.js';
import type { Change, Library } from '../../conversation/library.js';
import { Sentences } from '../../conversation/sentences.js';
import { checkSounds, isSound, soundsOf } from '../../conversation/sounds.js';
import type { ChatEngine, EngineInfo } from '../../engines/engine_port.js';
import { errorText } from '../../engines/error_advice.js';
import type { Settings } from '../../settings/settings.js';
import { storeText, type TextStore } from '../../settings/storage.js';
import type { ToolServers } from '../../tools/tool_servers.js';
import { h, setText } from '../dom.js';
import type { Announcer } from './announcer.js';
import { Composer } from './composer.js';
import { LoadBar } from './load_bar.js';
import { Log } from './log.js';
import { Notices } from './notices.js';
import type { ToolRunner } from './tool_view.js';
import { Welcome } from './welcome.js';

export interface ChatContext {
  /** The running model, if any. */
  model(): ChatEngine | null;
  settings(): Settings;
  readonly toolServers: ToolServers;
  /** Another conversation was opened, or this one was saved or changed between empty and not. */
  changed(): void;
  /** A request failed; returns true if the page shows the error elsewhere. */
  failed(error: unknown): boolean;
}

const OPEN = 'mlcc.conversation.2';

export class ChatView {
  readonly log: HTMLElement;
  readonly dock: HTMLElement;
  readonly #store: TextStore | null;
  readonly #library: Library;
  readonly #context: ChatContext;
  readonly #announcer: Announcer;
  readonly #log: Log;
  readonly #notices = new Notices(() => this.#composer.focus());
  readonly #composer: Composer;
  readonly #room = h('p', 'room');
  readonly #loadBar = new LoadBar();
  readonly #welcome = new Welcome((text) => {
    this.#composer.offer(text);
    this.#composer.focus();
  });
  #conversation = new Conversation();
  #chat: Chat;
  #sentences = new Sentences();

  constructor(
    store: TextStore | null,
    library: Library,
    announcer: Announcer,
    context: ChatContext,
  ) {
    this.#store = store;
    this.#library = library;
    this.#context = context;
    this.#announcer = announcer;
    this.#chat = this.#newChat(this.#conversation);
    this.#log = new Log(() => this.#conversation.messages, {
      siblingIndex: (message) => this.#conversation.siblingIndex(message),
      onSwitch: (message, step) => this.#turn(message, step),
      onRegenerate: (answer) =>
        this.#with((model, set) => this.#chat.regenerate(model, set, answer)),
      onContinue: () => this.#with((model, set) => this.#chat.continueAnswer(model, set)),
      onEdit: (question, text) =>
        this.#with((model, set) =>
          this.#chat.ask(model, set, text, question.attachments, question),
        ),
      onResults: (results) =>
        this.#with((model, set) => this.#chat.sendToolResults(model, set, results)),
      runner: (answer) => this.#runner(answer),
    });
    this.#composer = new Composer(store, {
      onSend: (text, attachments) => this.#ask(text, attachments),
      onStop: () => this.#chat.stop(),
      checkImages: (images) => this.#checkImages(images),
      checkSounds: (sounds) => this.#checkSounds(sounds),
      onError: (error) => this.showError(error),
    });
    this.log = h('div', 'log-place', this.#welcome.element, this.#log.element);
    this.dock = h('div', 'dock', this.#notices.element, this.#loadBar.element);
    this.dock.append(this.#composer.element, this.#room);
    this.#listen();
  }

  get id(): string {
    return this.#conversation.id;
  }

  get isEmpty(): boolean {
    return this.#conversation.isEmpty;
  }

  /** Whether questions can be sent. The draft is kept either way. */
  set isReady(isReady: boolean) {
    this.dock.hidden = !isReady;
    this.#log.canAsk = isReady;
  }

  /** Open the conversation that this tab had open. */
  async resume(): Promise<void> {
    const id = this.#store?.getItem(OPEN);
    const kept = id ? await this.#library.get(id) : undefined;
    if (kept && this.isEmpty) this.#show(new Conversation(kept));
  }

  /** Open a conversation of the library. */
  async open(id: string): Promise<void> {
    if (id === this.id) return this.#composer.focus();
    const kept = await this.#library.get(id);
    if (!kept) return;
    this.#chat.stop();
    this.#notices.clear();
    this.#show(new Conversation(kept));
    this.#announcer.say(`${this.#conversation.title}: opened.`);
    this.#composer.focus();
  }

  /** Start a new conversation; the open one is saved. */
  begin(): void {
    this.#chat.stop();
    this.#notices.clear();
    this.#show(new Conversation());
    this.#announcer.say('New chat.');
    this.#composer.focus();
  }

  async rename(id: string, title: string): Promise<void> {
    if (id === this.id) {
      this.#conversation.rename(title);
      await this.#save();
    } else await this.#library.rename(id, title);
  }

  async remove(id: string): Promise<void> {
    if (id === this.id) this.begin();
    await this.#library.remove(id);
  }

  /** Another tab saved or deleted a conversation. */
  async onLibraryChange({ kind, id }: Change): Promise<void> {
    if (id !== this.id) return;
    if (kind === 'removed') {
      this.begin();
      this.#notices.add('This conversation was deleted in another tab.', 'note');
      return;
    }
    const kept = await this.#library.get(id);
    if (kept && id === this.id) this.#conversation.merge(kept);
    this.#log.listed();
  }

  /** A model answers, once it is loaded: show its notes and focus the message field. */
  greet(info: EngineInfo, isLoaded: boolean): void {
    this.#notices.clear();
    for (const note of info.notes) this.#notices.add(note, 'note');
    this.#welcome.show(info, isLoaded);
    this.#composer.takeImages(info.takesImages, info.imageSize);
    this.#composer.takeSound(info.takesSound);
    this.#announcer.say(
      `${info.model} ${isLoaded ? 'is ready' : 'loads with the first question'}.`,
    );
    this.#measure();
    this.#composer.focus();
  }

  /** Show that the server loads a model, and the share that it has read; null: it loads none. */
  showLoading(name: string | null, share: number | null): void {
    const wasShown = this.#loadBar.isShown;
    this.#loadBar.show(name, share);
    if (name !== null && !wasShown) this.#announcer.say(`${name} is being loaded.`);
  }

  /** Attach files to the next question. */
  attach(files: readonly File[]): void {
    void this.#composer.attach(files);
  }

  /** Other tool servers are there than before. */
  toolsChanged(): void {
    this.#log.listed();
  }

  /** Show an error beside the conversation. */
  showError(error: unknown): void {
    this.#notices.add(errorText(error), 'error');
  }

  /** Show a note. */
  note(text: string): void {
    this.#notices.add(text, 'note');
  }

  #newChat(conversation: Conversation): Chat {
    // Events of a conversation that is no longer open are saved but not drawn.
    const ifRead = (act: () => void) => {
      if (conversation === this.#conversation) act();
    };
    return new Chat(conversation, {
      listed: () => ifRead(() => this.#listed()),
      grew: (answer) => ifRead(() => this.#grew(answer)),
      ended: (answer, error) => ifRead(() => this.#ended(answer, error)),
      refused: (question, error) => ifRead(() => this.#refused(question, error)),
      save: () => void this.#save(conversation),
      tools: () => this.#context.toolServers.tools,
    });
  }

  /** Runs the calls of an answer on the visitor's tool servers. */
  #runner(answer: Message): ToolRunner {
    const servers = this.#context.toolServers;
    return {
      hostOf: (name) => servers.hostOf(name),
      isAllowed: (name) => servers.isAllowed(this.id, name),
      allow: (name) => servers.allow(this.id, name),
      run: (index, call, isAsked) =>
        servers.run(`${answer.id} ${index}`, call.name, call.arguments, isAsked),
    };
  }

  #show(conversation: Conversation): void {
    this.#conversation = conversation;
    this.#chat = this.#newChat(conversation);
    storeText(this.#store, OPEN, conversation.id);
    this.#listed();
  }

  #listen(): void {
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !document.querySelector('dialog[open]')) this.#chat.stop();
    });
    // A running answer is saved as far as it got when the page closes.
    window.addEventListener('pagehide', () => void this.#save());
    this.log.addEventListener('announce', (event) => {
      this.#announcer.say(String((event as CustomEvent<unknown>).detail));
    });
  }

  async #save(conversation = this.#conversation): Promise<void> {
    try {
      await this.#library.save(conversation);
      this.#context.changed();
    } catch (error) {
      this.showError(new Error(`The browser did not keep this conversation: ${errorText(error)}`));
    }
  }

  #ask(question: string, attachments: readonly Attachment[]): void {
    const refusal = this.#refusalOf(attachments);
    if (refusal) this.showError(refusal);
    if (refusal || !this.#context.model()) this.#composer.offer(question, attachments);
    else storeText(this.#store, OPEN, this.id);
    if (refusal) return;
    this.#with((model, settings) => this.#chat.ask(model, settings, question, attachments));
  }

  /** Why a request of the conversation with these attachments cannot be sent: the model or the
   * conversation may be another than when they were attached. */
  #refusalOf(attachments: readonly Attachment[]): AttachmentError | null {
    const { messages } = this.#conversation;
    const images = attachments.filter(isImage);
    const sounds = attachments.filter(isSound);
    try {
      if (images.length + imagesOf(messages).length > 0) this.#checkImages(images);
      if (sounds.length + soundsOf(messages).length > 0) this.#checkSounds(sounds);
    } catch (error) {
      if (error instanceof AttachmentError) return error;
      throw error;
    }
    return null;
  }

  /** Raises AttachmentError if the model takes no images, or not so many more. */
  #checkImages(images: readonly AttachedImage[]): void {
    const info = this.#context.model()?.info;
    if (info && !info.takesImages) {
      const reads = info.takesSound ? '' : ' reads text only and';
      throw new AttachmentError(
        `${nameOf(info)}${reads} takes no images. Choose a model that sees.`,
      );
    }
    checkImages([...imagesOf(this.#conversation.messages), ...images]);
  }

  /** Raises AttachmentError if the model takes no sound, or not so much more. */
  #checkSounds(sounds: readonly AttachedSound[]): void {
    const info = this.#context.model()?.info;
    if (info && !info.takesSound) {
      const reads = info.takesImages ? '' : ' reads text only and';
      throw new AttachmentError(
        `${nameOf(info)}${reads} takes no sound. Choose a model that hears.`,
      );
    }
    checkSounds([...soundsOf(this.#conversation.messages), ...sounds]);
  }

  #with(act: (model: ChatEngine, settings: Settings) => Promise<void>): void {
    const model = this.#context.model();
    if (model) void act(model, this.#context.settings());
    this.#composer.focus();
  }

  #turn(message: Message, step: number): void {
    if (this.#chat.isBusy) return;
    this.#conversation.showSibling(message, step);
    this.#log.listed();
    void this.#save();
  }

  #listed(): void {
    this.#composer.isBusy = this.#chat.isBusy;
    if (this.#chat.isBusy) this.#notices.clear();
    this.#sentences = new Sentences();
    this.#announcer.hush();
    this.#log.listed();
    this.#log.toEnd();
    this.#measure();
    this.#context.changed();
  }

  #grew(answer: Message): void {
    this.#log.grew();
    this.#announcer.say(this.#sentences.next(answer.content));
  }

  #ended(answer: Message, error: unknown): void {
    this.#composer.isBusy = false;
    this.#log.listed();
    this.#measure();
    this.#announcer.say(this.#sentences.rest(answer.content));
    if (answer.end === 'stopped') this.#announcer.say('Stopped.');
    // A lost model is reported in the stage.
    if (error && this.#context.model() && !this.#context.failed(error)) this.showError(error);
    this.#context.changed();
  }

  #refused(question: Message, error: unknown): void {
    this.#composer.isBusy = false;
    this.#composer.offer(question.content, question.attachments);
    this.#log.listed();
    if (!this.#context.failed(error)) this.showError(error);
    this.#context.changed();
  }

  /** Show how much of the context the conversation uses. */
  #measure(): void {
    const context = this.#context.model()?.info.context;
    const figures = this.#conversation.messages.findLast((message) => message.figures)?.figures;
    const used = figures ? figures.promptTokens + figures.tokens : 0;
    const most = context ? ` of ${context.toLocaleString('en')}` : '';
    setText(this.#room, used ? `${used.toLocaleString('en')}${most} tokens` : '');
  }
}

function nameOf(info: EngineInfo): string {
  return info.where === 'tab' ? `On your GPU, ${info.model}` : info.model;
}
