"""Creates tokens for Amazon MSK with IAM, with AWS's own signer and the credentials that botocore finds."""

import os
import threading
import time
from importlib.util import find_spec
from typing import NamedTuple

_SPARE_SECONDS = 60.0
"""A token with less remaining lifetime is not used again (AWS gives 15 minutes)."""


class AwsIam(NamedTuple):
    """The region of the tokens and the role to assume; None: the default credentials."""

    region: str
    role_arn: str | None = None


class TokenMaker:
    """Returns tokens, from a cache while the last one is valid. For several threads."""

    def __init__(self, iam: AwsIam, secrets: set[str]) -> None:
        """``secrets`` takes the last two tokens made. Raises ValueError where the signer is not installed."""
        if find_spec("aws_msk_iam_sasl_signer") is None:
            raise ValueError(
                "aws_msk_iam needs AWS's signer, which is not installed; next step: pip install '.[msk]' in a checkout"
            )
        self._iam = iam
        self._secrets = secrets
        self._secrets.update(filter(None, map(os.environ.get, ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))))
        self._made: tuple[str, float] | None = None
        self._before = ""
        self._one_at_a_time = threading.Lock()

    def __call__(self, _: object = None) -> tuple[str, float]:
        """Return a token and its expiry, Unix seconds. Raises ValueError with the error of AWS."""
        with self._one_at_a_time:
            if self._made is None or self._made[1] - time.time() < _SPARE_SECONDS:
                # One that was replaced may still be quoted by a broker; those before it are over.
                self._secrets.discard(self._before)
                self._before = "" if self._made is None else self._made[0]
                self._made = self._make()
                self._secrets.add(self._made[0])
            return self._made

    def _make(self) -> tuple[str, float]:
        # Found late: boto3 takes half a second to import, and only MSK users have it.
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer  # noqa: N813, PLC0415

        region, role = self._iam
        try:
            if role is None:
                token, expires_ms = signer.generate_auth_token(region)
            else:
                import boto3  # noqa: PLC0415

                # The signer assumes the role in boto3's default session, which may know no region.
                boto3.setup_default_session(region_name=boto3.Session().region_name or region)
                token, expires_ms = signer.generate_auth_token_from_role_arn(region, role)
        except AttributeError:  # what signer 1.0.2 says where botocore finds no credentials
            raise ValueError(
                "no AWS credentials found; next step: give the pod or instance a role, or set AWS_PROFILE, or "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from None
        except Exception as error:  # noqa: BLE001 - botocore's errors share no class, and all mean the same here
            cause = f"{type(error).__name__}: {error}"
            for_role = "" if role is None else f" for {role}"
            raise ValueError(
                f"AWS gave no credentials{for_role}: {cause}; next step: check the role, the profile and the clock"
            ) from None
        return token, expires_ms / 1000
