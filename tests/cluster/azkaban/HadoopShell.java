package azkaban.jobtype;

import azkaban.jobExecutor.ProcessJob;
import azkaban.utils.Props;
import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.JobClient;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.net.NetUtils;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.SecurityUtil;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;
import org.apache.log4j.Logger;

/**
 * Stands in for the job type class of that name in Azkaban 3.x, which no registry has: a server of
 * 2.5 obtains tokens by Hadoop's own client, for the user whom a job names, and hands them to the
 * job's process.
 *
 * <p>The contract is that of 3.90: its login is proxy.user and proxy.keytab.location;
 * azkaban.should.proxy and obtain.binary.token of the private properties turn it on;
 * obtain.namenode.token and obtain.jobtracker.token say which tokens; the renewer is the
 * ResourceManager; the file's path is env.HADOOP_TOKEN_FILE_LOCATION among the job's properties; no
 * token of HDFS or YARN is cancelled when the process has ended.
 *
 * <p>With test.uid.USER in the private properties the process runs as that uid, and the token file
 * is that uid's, as execute-as-user makes it in 3.x.
 */
public class HadoopShell extends ProcessJob {
  private final Props system;
  private String uid;

  public HadoopShell(String id, Props system, Props job, Logger log) {
    super(id, system, job, log);
    this.system = system;
  }

  @Override
  public void run() throws Exception {
    Props job = getJobProps();
    if (system.getBoolean("azkaban.should.proxy", false)
        && system.getBoolean("obtain.binary.token", false)) {
      String user = job.getString("user.to.proxy");
      uid = system.getString("test.uid." + user, null);
      File file = File.createTempFile("mr-azkaban", ".token");
      file.setWritable(true, true);
      obtain(user).writeTokenStorageFile(
          new org.apache.hadoop.fs.Path(file.toURI()), new Configuration());
      // Owner: read; the server's group: read and write.
      Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString("r--rw----"));
      if (uid != null) {
        own(file.toPath());
        own(Paths.get(getWorkingDirectory()));
      }
      job.put("env.HADOOP_TOKEN_FILE_LOCATION", file.getAbsolutePath());
    }
    super.run();
  }

  private Credentials obtain(String user) throws Exception {
    boolean files = system.getBoolean("obtain.namenode.token", false);
    boolean yarn = system.getBoolean("obtain.jobtracker.token", false);
    JobConf conf = new JobConf();
    UserGroupInformation proxy = UserGroupInformation.createProxyUser(user, login(conf));
    String renewer = renewer(conf);
    Credentials found = new Credentials();
    proxy.doAs(
        (PrivilegedExceptionAction<Void>)
            () -> {
              if (files) {
                FileSystem.newInstance(conf).addDelegationTokens(renewer, found);
              }
              if (yarn) {
                Token<?> token = new JobClient(conf).getDelegationToken(new Text(renewer));
                found.addToken(token.getService(), token);
              }
              return null;
            });
    return found;
  }

  private UserGroupInformation login(Configuration conf) throws IOException {
    synchronized (HadoopShell.class) {
      UserGroupInformation.setConfiguration(conf);
      return UserGroupInformation.loginUserFromKeytabAndReturnUGI(
          system.getString("proxy.user"), system.getString("proxy.keytab.location"));
    }
  }

  private static String renewer(JobConf conf) throws IOException {
    InetSocketAddress address = NetUtils.createSocketAddr(conf.get("yarn.resourcemanager.address"));
    String principal = conf.get("yarn.resourcemanager.principal");
    return SecurityUtil.getServerPrincipal(principal, address.getHostName());
  }

  private void own(Path path) throws Exception {
    int code = new ProcessBuilder("chown", "-R", uid, path.toString()).start().waitFor();
    if (code != 0) {
      throw new IOException("chown of " + path + ": exit code " + code);
    }
  }

  @Override
  protected List<String> getCommandList() {
    List<String> words = new ArrayList<>();
    for (String command : super.getCommandList()) {
      words.add(
          uid == null
              ? command
              : "setpriv --reuid=" + uid + " --regid=" + uid + " --clear-groups " + command);
    }
    return words;
  }

  @Override
  public java.io.File[] initPropsFiles() {
    java.io.File[] made = super.initPropsFiles();
    if (uid != null) {
      for (java.io.File each : made) {
        try {
          own(each.toPath());
        } catch (Exception error) {
          throw new RuntimeException(error);
        }
      }
    }
    return made;
  }
}
