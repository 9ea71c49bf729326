"""The official Python client against the real server."""

import openai
import pytest


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server["url"], api_key="secret", max_retries=0)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


def ask(client, model, text="What is the capital of France?", **options):
    options = {"max_tokens": 24, "temperature": 0, **options}
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **options)


def test_chats(client, model):
    reply = ask(client, model)
    assert reply.choices[0].message.content.strip()
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage.prompt_tokens + reply.usage.completion_tokens == reply.usage.total_tokens
    assert reply.usage.prompt_tokens_details.cached_tokens == 0
    assert reply.usage.completion_tokens_details.reasoning_tokens == 0


def test_streams(client, model):
    whole = ask(client, model)
    chunks = list(ask(client, model, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage == whole.usage and not chunks[-1].choices
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_log_probabilities(client, model):
    choice = ask(client, model, logprobs=True, top_logprobs=3).choices[0]
    tokens = choice.logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == choice.message.content
    assert all(len(token.top_logprobs) == 3 and token.top_logprobs[0].logprob == token.logprob for token in tokens)
    pieces = [chunk.choices[0].logprobs for chunk in ask(client, model, logprobs=True, top_logprobs=3, stream=True)]
    streamed = [token for piece in pieces if piece for token in piece.content]
    assert streamed == tokens


def test_several_replies_stop_texts_and_seeds(client, model):
    reply = ask(client, model, n=3, seed=7, temperature=1.0, max_tokens=8)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    again = ask(client, model, n=3, seed=7, temperature=1.0, max_tokens=8)
    assert [choice.message.content for choice in again.choices] == [choice.message.content for choice in reply.choices]
    whole = ask(client, model).choices[0].message.content
    stop = whole[5:9]
    stopped = ask(client, model, stop=[stop]).choices[0]
    assert (stopped.finish_reason, stopped.message.content) == ("stop", whole[: whole.index(stop)])


def test_completions(client, model):
    options = {"model": model, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0, "logprobs": 2}
    whole = client.completions.create(**options)
    chunks = list(client.completions.create(**options, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens


def test_models(client, model, server):
    assert model == server["model"]
    assert client.models.retrieve(model).id == model
    assert client.models.retrieve(model).max_model_len == 2048


def test_errors_are_typed(client, model, server):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, "word " * 5000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, top_p=7)
    assert caught.value.param == "top_p"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, functions=[{"name": "read"}])
    assert caught.value.param == "functions"
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, "gpt-4")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        ask(openai.OpenAI(base_url=server["url"], api_key="wrong", max_retries=0), model)


def test_a_full_queue_is_a_rate_limit(client, model):
    # One runs, 64 wait.
    streams = [ask(client, model, stream=True, max_tokens=1500, logit_bias={"2": -100}) for _ in range(65)]
    try:
        with pytest.raises(openai.RateLimitError) as caught:
            ask(client, model)
        assert int(caught.value.response.headers["retry-after"]) > 0
    finally:
        for stream in streams:
            stream.close()
    assert ask(client.with_options(max_retries=5), model).choices
