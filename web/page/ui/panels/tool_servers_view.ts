/** The section of the settings with the MCP servers: add, switch on and off, remove. */

import { errorText } from '../../engines/error_advice.js';
import type { ToolServer, ToolServers } from '../../tools/tool_servers.js';
import { button, h, setText } from '../dom.js';
import { icon } from '../icons.js';

const HINT =
  'The model may call the tools of MCP servers that you add. Each call is shown and asked for. The server sees the arguments of its calls; the model sees its results.';

export class ToolServersView {
  readonly element: HTMLElement;
  readonly #servers: ToolServers;
  readonly #list = h('ul', 'cards');
  readonly #fault = h('p', { class: 'fault', attributes: { role: 'alert' } });

  constructor(servers: ToolServers) {
    this.#servers = servers;
    const heading = h('h3', '', 'Tool servers (MCP)');
    const hint = h('p', 'hint', HINT);
    this.element = h('section', 'tool-servers', heading, hint, this.#list, this.#form());
  }

  /** Show the servers and their states; the focus stays on its switch. */
  show(): void {
    const at = document.activeElement?.getAttribute('aria-label');
    this.#list.replaceChildren(...this.#servers.list.map((server) => this.#row(server)));
    const again = [...this.#list.querySelectorAll<HTMLElement>('[aria-label]')];
    if (at) again.find((element) => element.getAttribute('aria-label') === at)?.focus();
  }

  #row(server: ToolServer): HTMLElement {
    const { address, isOn } = server;
    const label = `Use ${address}`;
    const box = h('input', { attributes: { type: 'checkbox', 'aria-label': label } });
    box.checked = isOn;
    box.addEventListener('change', () => this.#servers.switch(address, box.checked));
    const state = h('p', 'muted', stateOf(server));
    const words = h('div', '', h('strong', 'model-name', address), state);
    const remove = button(
      `Remove ${address}`,
      'icon',
      () => this.#servers.remove(address),
      icon('remove'),
    );
    return h('li', 'card', box, words, remove);
  }

  #form(): HTMLFormElement {
    const field = h('input', { attributes: { id: 'mcp', type: 'text', inputmode: 'url' } });
    field.placeholder = 'https://example.org/mcp';
    field.spellcheck = false;
    const add = h('button', { class: 'button plain', attributes: { type: 'submit' } }, 'Add');
    const label = h('label', { attributes: { for: 'mcp' } }, 'Address of an MCP server');
    const form = h('form', 'address', label, h('div', 'field-row', field, add), this.#fault);
    form.noValidate = true;
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      try {
        setText(this.#fault, '');
        this.#servers.add(field.value);
        field.value = '';
      } catch (error) {
        setText(this.#fault, errorText(error));
        field.focus();
      }
    });
    return form;
  }
}

function stateOf({ state, fault, tools }: ToolServer): string {
  if (state === 'failed') return fault;
  if (state === 'connecting') return 'connecting …';
  if (state === 'off') return 'off';
  return tools.length > 0 ? `on · ${tools.join(', ')}` : 'on, without tools';
}
