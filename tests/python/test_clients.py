"""The official clients against a model that says what the conversation wants."""

import json
import os

import anthropic
import openai
import pydantic
import pytest
from said import LIST, READ, call, say, tools

THOUGHT = "<think>\nOne file.\n</think>\n\n"
REFUSAL = THOUGHT + "I will not."
CALLS = call("read", path="x.py") + "\n" + call("list")


class City(pydantic.BaseModel):
    name: str
    people: int


@pytest.fixture(scope="session")
def chat():
    return openai.OpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key="any", max_retries=0)


@pytest.fixture(scope="session")
def messages():
    return anthropic.Anthropic(base_url=os.environ["BASE_URL"], api_key="any", max_retries=0).messages


def user(text):
    return [{"role": "user", "content": text}]


def called(function):
    return function.name, json.loads(function.arguments)


class TestChat:
    def ask(self, client, said, method="create", **more):
        return getattr(client.chat.completions, method)(model="any", messages=user(say(said)), **more)

    def test_calls_and_their_results(self, chat):
        history = user(say(THOUGHT + "Reading." + CALLS))
        choice = chat.chat.completions.create(model="any", messages=history, tools=tools("chat")).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Reading.")
        assert choice.message.reasoning_content.strip() == "One file."
        read, listed = choice.message.tool_calls
        assert (read.function.name, json.loads(read.function.arguments)) == ("read", {"path": "x.py"})
        assert (listed.function.name, listed.function.arguments) == ("list", "{}")
        history.append(choice.message.model_dump(exclude_none=True))
        history.append({"role": "tool", "tool_call_id": read.id, "content": "print()"})
        history.append({"role": "tool", "tool_call_id": listed.id, "content": say("Both read.")})
        after = chat.chat.completions.create(model="any", messages=history, tools=tools("chat"))
        assert (after.choices[0].finish_reason, after.choices[0].message.content) == ("stop", "Both read.")
        # Thinking that comes back is part of the prompt.
        history[1].pop("reasoning_content")
        without = chat.chat.completions.create(model="any", messages=history, tools=tools("chat"))
        assert without.usage.prompt_tokens < after.usage.prompt_tokens

    def test_stream_helper(self, chat):
        names, text = [], ""
        options = {"messages": user(say(THOUGHT + "Reading." + CALLS)), "tools": tools("chat", strict=True)}
        with chat.chat.completions.stream(model="any", stream_options={"include_usage": True}, **options) as stream:
            for event in stream:
                if event.type == "content.delta":
                    text += event.delta
                elif event.type == "tool_calls.function.arguments.done":
                    names.append((event.name, json.loads(event.arguments)))
            final = stream.get_final_completion()
        assert (text, names) == ("Reading.", [("read", {"path": "x.py"}), ("list", {})])
        assert final.choices[0].finish_reason == "tool_calls"
        assert [call.function.name for call in final.choices[0].message.tool_calls] == ["read", "list"]
        assert final.usage.completion_tokens_details.reasoning_tokens > 0

    def test_a_schema_is_kept(self, chat):
        good = self.ask(chat, '{"name": "Ulm", "people": 126000}', "parse", response_format=City)
        assert good.choices[0].message.parsed == City(name="Ulm", people=126000)
        bad = self.ask(chat, 'Well, {"people": "many"}', "parse", response_format=City, reasoning_effort="none")
        assert isinstance(bad.choices[0].message.parsed, City)
        with chat.chat.completions.stream(
            model="any", messages=user(say('{"name": "Ulm", "people": 1}')), response_format=City
        ) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == City(name="Ulm", people=1)
        free = self.ask(chat, THOUGHT + 'x{"a": 1}', response_format={"type": "json_object"})
        assert json.loads(free.choices[0].message.content) == {"a": 1}

    @pytest.mark.parametrize("choice", ("required", {"type": "function", "function": {"name": "list"}}))
    def test_a_call_is_forced(self, chat, choice):
        forced = self.ask(chat, REFUSAL, tools=tools("chat", LIST), tool_choice=choice).choices[0]
        assert forced.finish_reason == "tool_calls"
        assert [called(call.function) for call in forced.message.tool_calls] == [("list", {})]

    def test_none_is_none(self, chat):
        reply = self.ask(chat, call("list"), tools=tools("chat"), tool_choice="none").choices[0]
        assert (reply.finish_reason, reply.message.tool_calls) == ("stop", None)

    def test_limits(self, chat):
        cut = self.ask(chat, call("read", path="a" * 200), tools=tools("chat"), max_tokens=80).choices[0]
        assert cut.finish_reason == "length"
        cut = self.ask(chat, THOUGHT, max_completion_tokens=12).choices[0]
        assert (cut.finish_reason, cut.message.content) == ("length", "")
        with pytest.raises(openai.LengthFinishReasonError):
            self.ask(chat, '{"name": "Ulm", "people": 1}', "parse", response_format=City, max_tokens=5)

    def test_stop_texts(self, chat):
        reply = self.ask(chat, "one two three", stop=["two", "four"]).choices[0]
        assert (reply.finish_reason, reply.message.content) == ("stop", "one ")

    def test_errors(self, chat):
        with pytest.raises(openai.BadRequestError) as caught:
            self.ask(chat, "a", temperature=-3)
        assert (caught.value.param, caught.value.type) == ("temperature", "invalid_request_error")
        with pytest.raises(openai.BadRequestError) as caught:
            self.ask(chat, "a" * 200_000)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as caught:
            named = {"type": "function", "function": {"name": "write"}}
            self.ask(chat, "a", tools=tools("chat"), tool_choice=named)
        assert caught.value.param.startswith("tool_choice")


class TestResponses:
    def ask(self, client, said, method="create", **more):
        return getattr(client.responses, method)(model="any", input=say(said), **more)

    def test_calls_and_their_results(self, chat):
        history = user(say(THOUGHT + "Reading." + CALLS))
        first = chat.responses.create(model="any", input=history, tools=tools("responses"), store=False)
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
        assert (first.status, first.output_text) == ("completed", "Reading.")
        assert first.output[0].summary[0].text.strip() == "One file."
        read, listed = first.output[2:]
        assert (read.name, json.loads(read.arguments), listed.arguments) == ("read", {"path": "x.py"}, "{}")
        history += [item.model_dump(exclude_none=True) for item in first.output]
        history.append({"type": "function_call_output", "call_id": read.call_id, "output": "print()"})
        last = [{"type": "input_text", "text": say("Both read.")}]
        history.append({"type": "function_call_output", "call_id": listed.call_id, "output": last})
        after = chat.responses.create(model="any", input=history, tools=tools("responses"), store=False)
        assert after.output_text == "Both read."
        # Thinking that comes back is part of the prompt; encrypted alone, too.
        del history[1]["summary"][0]
        hidden = chat.responses.create(model="any", input=history, tools=tools("responses"), store=False)
        assert hidden.usage.input_tokens == after.usage.input_tokens
        del history[1]
        without = chat.responses.create(model="any", input=history, tools=tools("responses"), store=False)
        assert without.usage.input_tokens < after.usage.input_tokens

    def test_stream_helper(self, chat):
        said, types = say(THOUGHT + "Reading." + CALLS), []
        with chat.responses.stream(model="any", input=said, tools=tools("responses", strict=True)) as stream:
            for event in stream:
                types.append(event.type)
            final = stream.get_final_response()
        assert types[0] == "response.created" and types[-1] == "response.completed"
        assert types.count("response.output_item.done") == 4
        assert final.output_text == "Reading."
        assert [(call.name, call.parsed_arguments) for call in final.output[2:]] == [
            ("read", {"path": "x.py"}), ("list", {})]
        assert final.usage.output_tokens_details.reasoning_tokens > 0

    def test_a_tool_that_takes_text(self, chat):
        patch = "*** Begin\n+\"quoted\" \\ and 日本\n*** End"
        custom = {"type": "custom", "name": "apply_patch", "description": "Applies a patch."}
        said = call("apply_patch", input=patch)
        whole = self.ask(chat, said, tools=[custom])
        assert [(item.type, item.name, item.input) for item in whole.output] == [
            ("custom_tool_call", "apply_patch", patch)]
        with chat.responses.stream(model="any", input=say(said), tools=[custom]) as stream:
            pieces = [event.delta for event in stream if event.type == "response.custom_tool_call_input.delta"]
        assert "".join(pieces) == patch
        back = [*user(say(said)), whole.output[0].model_dump(exclude_none=True),
                {"type": "custom_tool_call_output", "call_id": whole.output[0].call_id, "output": say("Done.")}]
        assert chat.responses.create(model="any", input=back, tools=[custom]).output_text == "Done."

    def test_tools_in_a_namespace(self, chat):
        group = {"type": "namespace", "name": "files", "description": "Files.", "tools": tools("responses")}
        said = self.ask(chat, call("read", path="a"), tools=[group, {"type": "web_search"}])
        assert [(item.namespace, item.name) for item in said.output] == [("files", "read")]

    def test_a_schema_is_kept(self, chat):
        good = self.ask(chat, '{"name": "Ulm", "people": 126000}', "parse", text_format=City)
        assert good.output_parsed == City(name="Ulm", people=126000)
        bad = self.ask(chat, 'Well, {"people": "many"}', "parse", text_format=City, reasoning={"effort": "none"})
        assert isinstance(bad.output_parsed, City)
        with chat.responses.stream(model="any", input=say('{"name": "Ulm", "people": 1}'), text_format=City) as stream:
            assert stream.get_final_response().output_parsed == City(name="Ulm", people=1)

    @pytest.mark.parametrize("choice", (
        "required", {"type": "function", "name": "list"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "list"}]},
    ))
    def test_a_call_is_forced(self, chat, choice):
        forced = self.ask(chat, REFUSAL, tools=tools("responses", LIST), tool_choice=choice)
        assert [item.type for item in forced.output] == ["reasoning", "function_call"]
        assert called(forced.output[1]) == ("list", {})

    def test_limits(self, chat):
        cut = self.ask(chat, call("read", path="a" * 200), tools=tools("responses"), max_output_tokens=80)
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert [(item.type, item.status) for item in cut.output] == [("function_call", "incomplete")]
        cut = self.ask(chat, THOUGHT, max_output_tokens=12)
        assert (cut.status, [item.type for item in cut.output]) == ("incomplete", ["reasoning"])

    def test_goes_on_from_a_response(self, chat):
        first = self.ask(chat, THOUGHT + call("list"), tools=tools("responses"), instructions="Be short.")
        output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": say("Listed.")}
        after = chat.responses.create(
            model="any", input=[output], previous_response_id=first.id, tools=tools("responses"))
        assert (after.output_text, after.previous_response_id) == ("Listed.", first.id)
        third = chat.responses.create(model="any", input=say("Again."), previous_response_id=after.id)
        assert third.output_text == "Again." and third.usage.input_tokens > 0
        for wrong in ("resp_0", self.ask(chat, "Yes.", store=False).id):
            with pytest.raises(openai.BadRequestError) as caught:
                self.ask(chat, "a", previous_response_id=wrong)
            assert caught.value.code == "previous_response_not_found"
            assert caught.value.param == "previous_response_id"

    def test_errors(self, chat):
        with pytest.raises(openai.BadRequestError) as caught:
            self.ask(chat, "a" * 200_000)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as caught:
            self.ask(chat, "a", background=True)
        assert (caught.value.param, caught.value.code) == ("background", "unsupported_value")


class TestMessages:
    def ask(self, messages, said, method="create", **more):
        more = {"max_tokens": 1000, **more}
        return getattr(messages, method)(model="any", messages=user(say(said)), **more)

    def test_calls_and_their_results(self, messages):
        history = user(say(THOUGHT + "Reading." + CALLS))
        options = {"model": "any", "max_tokens": 1000, "tools": tools("messages"), "thinking": {"type": "adaptive"}}
        first = messages.create(messages=history, **options)
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert (first.stop_reason, first.content[0].thinking.strip()) == ("tool_use", "One file.")
        read, listed = first.content[2:]
        assert (read.name, read.input, listed.input) == ("read", {"path": "x.py"}, {})
        content = [block.model_dump(exclude_none=True) for block in first.content]
        history.append({"role": "assistant", "content": content})
        results = [{"type": "tool_result", "tool_use_id": read.id, "content": "print()"},
                   {"type": "tool_result", "tool_use_id": listed.id, "content": [{"type": "text", "text": "x.py"}]},
                   {"type": "text", "text": say("Both read.")}]
        history.append({"role": "user", "content": results})
        after = messages.create(messages=history, **options)
        assert (after.stop_reason, after.content[0].text) == ("end_turn", "Both read.")
        del content[0]
        assert messages.create(messages=history, **options).usage.input_tokens < after.usage.input_tokens

    def test_stream_helper(self, messages):
        said = user(say(THOUGHT + "Reading." + CALLS))
        pieces = {"thinking": "", "text": "", "input_json": ""}
        with messages.stream(model="any", max_tokens=1000, messages=said, tools=tools("messages")) as stream:
            for event in stream:
                if event.type in ("thinking", "text"):
                    pieces[event.type] += getattr(event, event.type)
                elif event.type == "input_json":
                    pieces["input_json"] += event.partial_json
            final = stream.get_final_message()
        assert (pieces["thinking"].strip(), pieces["text"]) == ("One file.", "Reading.")
        assert pieces["input_json"] == '{"path": "x.py"}{}'
        assert final.stop_reason == "tool_use" and [block.input for block in final.content[2:]] == [{"path": "x.py"}, {}]
        assert final.content[0].signature

    def test_a_schema_is_kept(self, messages):
        good = self.ask(messages, '{"name": "Ulm", "people": 126000}', "parse", output_format=City)
        assert good.parsed_output == City(name="Ulm", people=126000)
        form = {"format": {"type": "json_schema", "schema": {**City.model_json_schema(), "additionalProperties": False}}}
        said = THOUGHT + 'Well, {"people": "many"}'
        bad = self.ask(messages, said, output_config=form, max_tokens=15_000)
        City.model_validate_json(bad.content[1].text)
        bad = self.ask(messages, said, output_config=form, max_tokens=15_000, thinking={"type": "disabled"})
        City.model_validate_json(bad.content[0].text)

    @pytest.mark.parametrize("choice", ({"type": "any"}, {"type": "tool", "name": "list"}))
    def test_a_call_is_forced(self, messages, choice):
        forced = self.ask(messages, REFUSAL, tools=tools("messages", LIST), tool_choice=choice)
        assert forced.stop_reason == "tool_use"
        assert [block.type for block in forced.content] == ["thinking", "tool_use"]
        assert (forced.content[1].name, forced.content[1].input) == ("list", {})

    def test_limits(self, messages):
        cut = self.ask(messages, "Reading." + call("read", path="a" * 200), tools=tools("messages"), max_tokens=80)
        assert cut.stop_reason == "max_tokens"
        assert [block.type for block in cut.content] == ["text", "tool_use"]
        cut = self.ask(messages, THOUGHT, max_tokens=12)
        assert (cut.stop_reason, [block.type for block in cut.content]) == ("max_tokens", ["thinking"])

    def test_stop_texts(self, messages):
        reply = self.ask(messages, "one two three", stop_sequences=["two", "four"])
        assert (reply.stop_reason, reply.stop_sequence, reply.content[0].text) == ("stop_sequence", "two", "one ")

    def test_counts_tokens(self, messages):
        options = {"model": "any", "messages": user(say("Yes.")), "tools": tools("messages", READ), "system": "Be short."}
        counted = messages.count_tokens(**options).input_tokens
        usage = messages.create(max_tokens=10, **options).usage
        assert counted == usage.input_tokens + usage.cache_read_input_tokens

    def test_errors(self, messages):
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum") as caught:
            self.ask(messages, "a" * 200_000)
        assert caught.value.body["error"]["type"] == "invalid_request_error"
        assert caught.value.request_id == caught.value.body["request_id"]
        with pytest.raises(anthropic.BadRequestError):
            self.ask(messages, "a", tool_choice={"type": "tool", "name": "write"}, tools=tools("messages"))


class TestStrict:
    """A server with a key that takes only its model's name."""

    def test_other_names(self):
        url = os.environ["STRICT_URL"]
        openais = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0)
        for ask in (lambda: openais.chat.completions.create(model="gpt-4", messages=user("a")),
                    lambda: openais.responses.create(model="gpt-4", input="a")):
            with pytest.raises(openai.NotFoundError) as caught:
                ask()
            assert caught.value.code == "model_not_found"
        anthropics = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0).messages
        with pytest.raises(anthropic.NotFoundError) as caught:
            anthropics.create(model="claude", max_tokens=5, messages=user("a"))
        assert caught.value.body["error"]["type"] == "not_found_error"

    def test_other_keys(self):
        url = os.environ["STRICT_URL"]
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0).models.list()
        with pytest.raises(anthropic.AuthenticationError) as caught:
            anthropics = anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0)
            anthropics.messages.create(model="any", max_tokens=5, messages=user("a"))
        assert caught.value.body["error"]["type"] == "authentication_error"

    def test_models(self):
        url = os.environ["STRICT_URL"]
        openais = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0)
        anthropics = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0)
        ids = [model.id for model in openais.models.list()]
        assert ids == [model.id for model in anthropics.models.list()]
        assert openais.models.retrieve(ids[0]).id == anthropics.models.retrieve(ids[0]).id == ids[0]
