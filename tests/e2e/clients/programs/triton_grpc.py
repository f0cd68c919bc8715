"""NVIDIA's tritonclient over gRPC: infer, the model repository, and a text streamed by
ModelStreamInfer."""

import queue
from functools import partial

import numpy as np
import tritonclient.grpc as triton

from tests.e2e.clients.programs.client import main

TEXTS = ["a cat.", "two dogs!", "héllo"]


def connect(url):
    client = triton.InferenceServerClient(url)
    assert client.is_server_live() and client.is_server_ready()
    return client


def tensor(name, texts):
    made = triton.InferInput(name, [len(texts)], "BYTES")
    made.set_data_from_numpy(np.array([text.encode() for text in texts], dtype=np.object_))
    return made


def put(to, result, error):
    to.put((result, error))


def embeddings(url):
    with connect(url) as client:
        outputs = [triton.InferRequestedOutput("embedding")]
        found = client.infer("embed", [tensor("text", TEXTS)], outputs=outputs, request_id="5")
        assert found.get_response().id == "5"
        waiting = queue.Queue()
        client.async_infer("embed", [tensor("text", TEXTS)], partial(put, waiting))
        later, error = waiting.get(timeout=120)
        assert error is None
    return [found.as_numpy("embedding").tolist(), later.as_numpy("embedding").tolist()]


def scores(url):
    with connect(url) as client:
        pair = [tensor("query", ["a cat"]), tensor("document", TEXTS)]
        found = client.infer("score", pair).as_numpy("score").tolist()
        classes = client.infer("classify", [tensor("text", TEXTS)], model_version="1")
    labels = [label.decode() for label in classes.as_numpy("label")]
    return {"scores": found, "probs": classes.as_numpy("probabilities").tolist(), "labels": labels}


def repository(url):
    with connect(url) as client:
        client.load_model("classify")
        states = [client.is_model_ready("classify")]
        inputs = client.get_model_metadata("classify", as_json=True)["inputs"]
        client.unload_model("classify")
        states.append(client.is_model_ready("classify"))
        rows = client.get_model_repository_index().models
    return {"states": states, "inputs": inputs, "names": [row.name for row in rows]}


def statistics(url):
    with connect(url) as client:
        client.infer("embed", [tensor("text", TEXTS)])
        config = client.get_model_config("embed").config
        rows = client.get_inference_statistics().model_stats
        (row,) = client.get_inference_statistics("embed", "1").model_stats
    type_of = config.output[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    output = [config.output[0].name, type_of[config.output[0].data_type].name]
    success = row.inference_stats.success
    counts = [row.inference_count, success.count, success.ns > 0, row.execution_count > 0]
    return {"output": output, "counts": counts, "names": [row.name for row in rows]}


def text(url):
    """Pieces of two prompts on one stream, and a refusal between them."""
    waiting, options = queue.Queue(), {"max_tokens": 8, "temperature": 0}
    pieces, errors, ends = {"1": "", "2": ""}, [], 0
    with connect(url) as client:
        client.start_stream(partial(put, waiting))
        ask = partial(client.async_stream_infer, "toy", enable_empty_final_response=True)
        ask([tensor("text_input", ["hello"])], request_id="1", parameters=options)
        ask([tensor("text_input", ["hello"])], request_id="3", parameters={"n": 2})
        ask([tensor("text_input", ["you"])], request_id="2", parameters=options)
        while ends < 2 or not errors:
            result, error = waiting.get(timeout=120)
            if error is not None:
                errors.append(error.message())
                continue
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                ends += 1
            else:
                pieces[response.id] += result.as_numpy("text_output")[0].decode()
        client.stop_stream()
    return {"pieces": pieces, "errors": errors}


if __name__ == "__main__":
    main(globals())
