"""NVIDIA's tritonclient over HTTP: /infer with JSON and with bytes, and the model repository."""

import numpy as np
import tritonclient.http as triton

from tests.e2e.clients.programs.client import main

TEXTS = ["a cat.", "two dogs!", "héllo"]


def connect(url):
    client = triton.InferenceServerClient(url.removeprefix("http://"), network_timeout=120)
    assert client.is_server_live() and client.is_server_ready()
    return client


def tensor(name, texts, binary):
    made = triton.InferInput(name, [len(texts)], "BYTES")
    data = np.array([text.encode() for text in texts], dtype=np.object_)
    return made.set_data_from_numpy(data, binary_data=binary)


def embeddings(url):
    found = []
    with connect(url) as client:
        for binary in (True, False):
            output = triton.InferRequestedOutput("embedding", binary_data=binary)
            answer = client.infer("embed", [tensor("text", TEXTS, binary)], outputs=[output])
            found.append(answer.as_numpy("embedding").tolist())
    return found


def scores(url):
    with connect(url) as client:
        pair = [tensor("query", ["a cat"], True), tensor("document", TEXTS, False)]
        found = client.infer("score", pair).as_numpy("score").tolist()
        classes = client.infer("classify", [tensor("text", TEXTS, True)], model_version="1")
    labels = [label.decode() for label in classes.as_numpy("label")]
    return {"scores": found, "probs": classes.as_numpy("probabilities").tolist(), "labels": labels}


def repository(url):
    with connect(url) as client:
        client.load_model("classify")
        states = [client.is_model_ready("classify")]
        inputs = client.get_model_metadata("classify")["inputs"]
        client.unload_model("classify")
        states.append(client.is_model_ready("classify"))
        rows = client.get_model_repository_index()
    return {"states": states, "inputs": inputs, "names": [row["name"] for row in rows]}


def statistics(url):
    with connect(url) as client:
        client.infer("embed", [tensor("text", TEXTS, True)])
        (output,) = client.get_model_config("embed")["output"]
        rows = client.get_inference_statistics()["model_stats"]
        (row,) = client.get_inference_statistics("embed", "1")["model_stats"]
    success = row["inference_stats"]["success"]
    counts = [row["inference_count"], success["count"]]
    counts += [success["ns"] > 0, row["execution_count"] > 0]
    names = [row["name"] for row in rows]
    return {"output": [output["name"], output["data_type"]], "counts": counts, "names": names}


if __name__ == "__main__":
    main(globals())
