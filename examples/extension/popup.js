// The popup: the selected text of the page is the beginning of the question.
const [question, ask, answer, url] = ['question', 'ask', 'answer', 'url'].map((id) =>
  document.getElementById(id),
);

async function selectedText() {
  const [tab] = await chrome.tabs.query({ active: true, currentWindow: true });
  const [found] = await chrome.scripting.executeScript({
    target: { tabId: tab.id },
    func: () => getSelection().toString(),
  });
  return found?.result ?? '';
}

async function send() {
  await chrome.storage.local.set({ url: url.value });
  answer.textContent = '...';
  try {
    const response = await fetch(`${url.value}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        messages: [{ role: 'user', content: question.value }],
        temperature: 0,
      }),
    });
    const body = await response.json();
    answer.textContent = body.error?.message ?? body.choices[0].message.content;
  } catch (error) {
    answer.textContent = `${error.message}: start \`mlcc serve MODEL --cors-origin ${location.origin}\``;
  }
}

ask.onclick = send;
url.value = (await chrome.storage.local.get('url')).url ?? url.value;
question.value = await selectedText().catch(() => ''); // a page of the browser's own has none
