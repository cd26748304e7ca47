import pytest

from rankformer.errors import ConfigError
from rankformer.serving.settings import Tokens, check_address, is_loopback

SECRET = "a-secret-of-some-length"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_this_machine_alone_needs_no_token(host):
    assert is_loopback(host)
    check_address(host, Tokens())


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.0.2", "example.org", "localhost.example.org", "", "127.0.0.1.x"]
)
def test_any_other_address_needs_one(host):
    with pytest.raises(ConfigError, match="RANKFORMER_TOKEN"):
        check_address(host, Tokens(admin=SECRET))
    check_address(host, Tokens(access=SECRET))


def test_tokens_come_from_the_environment():
    tokens = Tokens.from_environment({"RANKFORMER_TOKEN": SECRET, "RANKFORMER_ADMIN_TOKEN": ""})
    assert (tokens.access, tokens.admin) == (SECRET, None)
    assert SECRET not in repr(tokens)


@pytest.mark.parametrize("token", ["short", "x" * 15, "with a space in it", "with-ümlaut-inside", "line-end-inside\n"])
@pytest.mark.parametrize("variable", ["RANKFORMER_TOKEN", "RANKFORMER_ADMIN_TOKEN"])
def test_weak_or_unsendable_tokens_are_refused_without_being_shown(variable, token):
    with pytest.raises(ConfigError, match=variable) as error:
        Tokens.from_environment({variable: token})
    assert token not in str(error.value)
