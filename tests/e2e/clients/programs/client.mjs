// What every client is asked to do, and how its program is called: `node program.mjs URL FEATURE`
// does one thing and prints what came of it as JSON. Beside client.py.

export const QUESTION = 'What is 17 + 25?';
export const CITY = 'Please call lookup {"city": "Paris"}';
export const PERSON = 'Who is Ada?';
export const PERSON_SCHEMA = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' } },
  required: ['name', 'age'],
  additionalProperties: false,
};
export const TOOL = {
  type: 'function',
  function: {
    name: 'lookup',
    description: 'The weather in a city.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string', description: 'its name' } },
      required: ['city'],
    },
  },
};

export const userMessage = (text) => [{ role: 'user', content: text }];

/** Calls one of a program's functions, as the command line says. */
export async function main(functions) {
  const [url, feature] = process.argv.slice(2);
  console.log(JSON.stringify(await functions[feature](url)));
}
