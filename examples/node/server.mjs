// A web server in Node that answers questions with a model, and streams the answer as plain text:
//
//     mlcc serve MODEL --port 8000
//     node examples/node/server.mjs 3000
//     curl 'http://127.0.0.1:3000/?q=What+is+17+%2B+25%3F'
//
// Node 18 or later, no packages. MLCC_URL names another server.
import { createServer } from 'node:http';

const url = process.env.MLCC_URL ?? 'http://127.0.0.1:8000';

/** The pieces of a model's answer. */
async function* answer(question, signal) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      messages: [{ role: 'user', content: question }],
      temperature: 0,
      stream: true,
    }),
    signal,
  });
  if (!response.ok) throw new Error((await response.json()).error.message);
  let rest = '';
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + text).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith('data: {')) {
        yield JSON.parse(event.slice(6)).choices[0]?.delta.content ?? '';
      }
    }
  }
}

const server = createServer(async (request, response) => {
  const question = new URL(request.url, 'http://localhost').searchParams.get('q');
  if (!question) {
    response.writeHead(400).end('ask with ?q=...\n');
    return;
  }
  const left = new AbortController(); // the model stops when the visitor leaves
  response.on('close', () => left.abort());
  try {
    for await (const piece of answer(question, left.signal)) response.write(piece);
    response.end('\n');
  } catch (error) {
    if (left.signal.aborted) return;
    if (!response.headersSent) response.statusCode = 502;
    response.end(`${error.message}\n`);
  }
});
server.listen(Number(process.argv[2] ?? 3000), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
