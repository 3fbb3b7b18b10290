"""TLS and SASL of a client, under the names of Kafka's own client settings.

- settings: table of the settings, and the ones that this client obeys
- tls: the `ssl.SSLContext` made from the settings, and explanations of failures
- sasl: PLAIN, SCRAM and OAUTHBEARER, message by message
- tokens: sources of OAUTHBEARER tokens
- token_endpoint: the request to a token endpoint

`tls`, `sasl`, `tokens` and `token_endpoint` are imported when the settings require them.
"""

from horolog.client.security.errors import AuthenticationFailed, NoToken
from horolog.client.security.settings import PLAINTEXT, SECURITY_SETTINGS, Security

__all__ = ["PLAINTEXT", "SECURITY_SETTINGS", "AuthenticationFailed", "NoToken", "Security"]
